package migrations_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
)

var update = flag.Bool("update", false, "write testdata/schema.sql anew")

// dumpSQL describes all that is in a schema, a line or paragraph for each thing, from the
// catalogs. Unlike pg_dump's, its text is the same for every version of PostgreSQL.
const dumpSQL = `
WITH rel AS (
    SELECT c.oid, c.relname, c.relkind, c.reloptions, c.relispartition, c.relpartbound
      FROM pg_catalog.pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)
), line AS (
    SELECT 1 AS part, relname AS name, 0 AS nr,
           CASE relkind WHEN 'v' THEN 'view ' ELSE 'table ' END || relname
           || CASE WHEN relkind = 'p' THEN ' partition by ' || pg_catalog.pg_get_partkeydef(oid) ELSE '' END
           || CASE WHEN relispartition THEN ' partition of ' || (SELECT p.relname FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent WHERE i.inhrelid = rel.oid)
                                            || ' ' || pg_catalog.pg_get_expr(relpartbound, oid) ELSE '' END
           || coalesce(' with (' || (SELECT pg_catalog.string_agg(o, ', ' ORDER BY o) FROM pg_catalog.unnest(reloptions) o) || ')', '') AS text
      FROM rel WHERE relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT 1, relname, 1000 + attnum, '    ' || attname || ' ' || pg_catalog.format_type(atttypid, atttypmod)
           || CASE WHEN attnotnull THEN ' not null' ELSE '' END
           || coalesce(' default ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid), '')
      FROM rel JOIN pg_catalog.pg_attribute a ON a.attrelid = rel.oid LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE relkind IN ('r', 'p', 'v') AND NOT relispartition AND attnum > 0 AND NOT attisdropped
    UNION ALL
    -- NOT NULL is a constraint of its own in newer versions; the column says it above.
    SELECT 1, relname, 3000 + (row_number() OVER (PARTITION BY relname ORDER BY conname))::int, '    constraint ' || conname || ' ' || pg_catalog.pg_get_constraintdef(k.oid)
      FROM rel JOIN pg_catalog.pg_constraint k ON k.conrelid = rel.oid WHERE contype <> 'n' AND NOT relispartition
    UNION ALL
    SELECT 1, relname, 4000 + (row_number() OVER (PARTITION BY relname ORDER BY indexrelid::regclass::text COLLATE "C"))::int, '    ' || pg_catalog.pg_get_indexdef(indexrelid)
      FROM rel JOIN pg_catalog.pg_index i ON i.indrelid = rel.oid
    UNION ALL
    SELECT 1, relname, 5000, pg_catalog.pg_get_viewdef(oid) FROM rel WHERE relkind = 'v'
    UNION ALL
    SELECT 1, relname, 6000 + (row_number() OVER (PARTITION BY relname ORDER BY tgname))::int, '    ' || pg_catalog.pg_get_triggerdef(t.oid)
      FROM rel JOIN pg_catalog.pg_trigger t ON t.tgrelid = rel.oid WHERE NOT tgisinternal
    UNION ALL
    SELECT 2, proname, 0, pg_catalog.pg_get_functiondef(p.oid)
           || CASE WHEN pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE') THEN '-- executable by everyone' ELSE '-- not executable by everyone' END
      FROM pg_catalog.pg_proc p WHERE pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)
    UNION ALL
    SELECT 3, relname, 0, relkind::text || ' ' || relname FROM rel WHERE relkind NOT IN ('r', 'p', 'v', 'i', 'I', 't')
    UNION ALL
    SELECT 4, typname, 0, 'type ' || typname || ' ' || typtype::text || coalesce(' ' || pg_catalog.pg_get_constraintdef(k.oid), '')
      FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid
     WHERE typnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1) AND typtype NOT IN ('c', 'b')
    UNION ALL
    SELECT 0, '', 0, CASE WHEN pg_catalog.has_schema_privilege('public', $1, 'USAGE') THEN 'schema open to everyone' ELSE 'schema closed to others' END
)
SELECT text FROM line ORDER BY part, name COLLATE "C", nr`

// dump describes a schema as if its name were doze.
func dump(t *testing.T, conn *pgx.Conn, schema string) string {
	t.Helper()
	_, err := conn.Exec(limit(t), "SET search_path = ''") // so that every name is written with its schema
	must(t, err)
	rows, err := conn.Query(limit(t), dumpSQL, schema)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	text := strings.Join(lines, "\n") + "\n"
	text = strings.NewReplacer(pgx.Identifier{schema}.Sanitize()+".", "doze.", schema+".", "doze.").Replace(text)
	// PostgreSQL before 16 names the table of each column of a view, even where there is only one.
	i := strings.Index(text, "view job_list")
	return text[:i] + strings.NewReplacer(" jobs.", " ", "(jobs.", "(", " history.", " ", "(history.", "(").Replace(text[i:])
}

// The schema is an interface: to other languages, to dashboards, to the build before. A change of it
// shows here.
func TestSchema_IsTheGoldenOne(t *testing.T) {
	t.Parallel()
	schema := dbtest.Schema(t)
	conn := connect(t, dbtest.URL(t))
	_, err := migrations.Up(limit(t), conn, schema)
	must(t, err)
	got := "-- What the migrations make, as this package's test writes it. To write it anew:\n--   go test ./migrations -run Golden -update\n" + dump(t, conn, schema)
	if *update {
		must(t, os.WriteFile("testdata/schema.sql", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/schema.sql")
	must(t, err)
	if got == string(want) {
		return
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(was), len(is)) {
		line := func(all []string) string {
			if i < len(all) {
				return all[i]
			}
			return "(end)"
		}
		if line(was) != line(is) {
			t.Fatalf("testdata/schema.sql, line %d:\n%s\nwant\n%s\nIf that is meant, run go test ./migrations -run Golden -update.", i+1, line(is), line(was))
		}
	}
}
