package queue

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the version of the tables that this package's statements fit.
// Package migrations makes them.
const SchemaVersion = 2

// DefaultSchema is the schema of Doze's tables where none is chosen.
const DefaultSchema = "doze"

// CheckSchema returns an error unless name can name the schema: 1 to 63 ASCII
// letters, digits, _ and -, the first a letter or _, and not beginning with pg_,
// which PostgreSQL keeps for itself.
func CheckSchema(name string) error {
	letter := name
	if rest, ok := strings.CutPrefix(name, "_"); ok { // which counts as a letter here
		letter = "x" + rest
	}
	if !isName(letter, 63, "_-") || isDigit(letter[0]) || strings.HasPrefix(strings.ToLower(name), "pg_") {
		return fieldError("schema", name, "want 1 to 63 letters, digits, _ and - (ASCII), the first a letter or _, and not pg_…")
	}
	return nil
}

// Qualify fills a schema into SQL text written for the schema doze. Each name is qualified in
// the text itself, since a transaction-mode pooler drops search_path.
func Qualify(sql, schema string) string {
	// By hand, not by a regular expression: a function that starts does this for each of its statements.
	const written = "doze."
	var b strings.Builder
	quoted := pgx.Identifier{schema}.Sanitize() + "."
	for {
		i := strings.Index(sql, written)
		if i < 0 {
			b.WriteString(sql)
			return b.String()
		}
		b.WriteString(sql[:i])
		if i > 0 && isWord(sql[i-1]) {
			b.WriteString(written) // the end of another name
		} else {
			b.WriteString(quoted)
		}
		sql = sql[i+len(written):]
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
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
