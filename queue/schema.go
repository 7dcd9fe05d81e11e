package queue

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the version of the tables that this package's statements fit.
// Package migrations makes them.
const SchemaVersion = 2

// DefaultSchema is the schema of Doze's tables where none is chosen.
const DefaultSchema = "doze"

var (
	schemaName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)
	qualifier  = regexp.MustCompile(`\bdoze\.`)
)

// CheckSchema returns an error unless name can name the schema: 1 to 63 ASCII
// letters, digits, _ and -, the first a letter or _, and not beginning with pg_,
// which PostgreSQL keeps for itself.
func CheckSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(strings.ToLower(name), "pg_") {
		return fieldError("schema", name, "want 1 to 63 letters, digits, _ and - (ASCII), the first a letter or _, and not pg_…")
	}
	return nil
}

// Qualify fills a schema into SQL text written for the schema doze. Each name is qualified in
// the text itself, since a transaction-mode pooler drops search_path.
func Qualify(sql, schema string) string {
	return qualifier.ReplaceAllLiteralString(sql, pgx.Identifier{schema}.Sanitize()+".")
}

// NewStore returns the statements for one schema; empty means [DefaultSchema].
// It returns a [*FieldError] for a name that cannot name a schema.
func NewStore(schema string) (*Store, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := CheckSchema(schema); err != nil {
		return nil, err
	}
	s := &Store{schema: schema, sql: make(map[string]string)}
	entries, err := files.ReadDir("sql")
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	for _, entry := range entries {
		text, err := files.ReadFile("sql/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read statements: %w", err)
		}
		s.sql[strings.TrimSuffix(entry.Name(), ".sql")] = Qualify(withoutHeader(string(text)), schema)
	}
	return s, nil
}

// withoutHeader drops the comment above a statement, which need not travel with each call.
func withoutHeader(text string) string {
	for strings.HasPrefix(text, "--") {
		_, rest, found := strings.Cut(text, "\n")
		if !found {
			return ""
		}
		text = rest
	}
	return strings.TrimSpace(text)
}
