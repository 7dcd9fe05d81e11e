#!/bin/bash
# Runs every spec with PostgreSQL's own isolationtester, in a database of its own that is dropped
# afterwards. Exits 1 if any permutation ends otherwise than gen.go says.
#
#   PGHOST=127.0.0.1 PGPORT=5432 PGUSER=postgres ./run.sh [SPEC...]
#
# isolationtester: Debian's postgresql-server-dev-15, or set ISOLATIONTESTER. KEEP=DIR keeps the
# specs and the outputs.
cd "$(dirname "$0")" || exit 1
tester=${ISOLATIONTESTER:-$(dirname "$(pg_config --pgxs)")/../../src/test/isolation/isolationtester}
[ -x "$tester" ] || { echo "no isolationtester at $tester; apt-get install postgresql-server-dev-15, or set ISOLATIONTESTER" >&2; exit 1; }
dir=${KEEP:-$(mktemp -d)}
mkdir -p "$dir"
db=doze_specs_$$
createdb "$db" || exit 1
trap 'dropdb --force "$db"; [ -n "$KEEP" ] || rm -rf "$dir"' EXIT
go run gen.go -schema >"$dir/tables.sql" && go run gen.go -dir "$dir" || exit 1
psql -q -X -v ON_ERROR_STOP=1 -d "$db" -f "$dir/tables.sql" || exit 1

bad=0 orders=0
for want in "$dir"/*.want; do
	name=$(basename "$want" .want)
	[ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
	"$tester" "dbname=$db" <"$dir/$name.spec" >"$dir/$name.out" 2>&1 || { echo "$name: isolationtester failed"; tail -5 "$dir/$name.out"; bad=1; continue; }
	# The value two lines below each heading "broken", beside what it must be.
	awk '/^broken/ { getline; getline; print ($1 == "t" ? "true" : $1 == "f" ? "false" : $1) }' "$dir/$name.out" >"$dir/$name.got"
	cut -d' ' -f1 "$want" | cmp -s - "$dir/$name.got" || bad=1
	paste -d' ' "$dir/$name.got" "$want" | awk -v name="$name" '
		$1 != $2 { print name ": SURPRISE: broken is " $1 ", not as said: " substr($0, length($1) + 2) }
		$1 == "true" { t++ } $1 == "false" { f++ }
		END { printf "%-16s %2d orders keep what they must, %d broken ones fail as they must\n", name, f, t }'
	orders=$((orders + $(wc -l <"$want")))
	if grep -q '^ERROR\|deadlock\|unused step name' "$dir/$name.out"; then
		echo "$name: an error in its output:"; grep -m3 'ERROR\|deadlock\|unused step name' "$dir/$name.out"; bad=1
	fi
done
[ $bad = 0 ] && echo "ALL AS EXPECTED, $orders orders" || echo "SURPRISES"
exit $bad
