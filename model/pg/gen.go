//go:build ignore

// Gen writes specs for PostgreSQL's isolationtester, made of the very statements that Doze
// runs: queue/sql/*.sql with literals for their parameters, on the tables of package migrations.
//
//	go run gen.go -schema >tables.sql   the tables, to be made once
//	go run gen.go -dir specs            NAME.spec and NAME.want, a line for each permutation
//
// Each permutation ends with a check whose only column is named broken. NAME.want says what it must
// be: f where the order is right, t where a step is wrong on purpose, so that the check is known to
// be able to fail.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	comment   = regexp.MustCompile(`(?m)^\s*--.*\n`)
)

// sql is a statement of Doze's with its parameters filled in.
func sql(file string, args ...string) string {
	text, err := os.ReadFile(filepath.Join("..", "..", "queue", "sql", file+".sql"))
	if err != nil {
		log.Fatal(err)
	}
	return parameter.ReplaceAllStringFunc(strings.TrimSpace(comment.ReplaceAllString(string(text), "")), func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		if n > len(args) {
			log.Fatalf("%s.sql has a parameter %s, and this program gives it %d", file, p, len(args))
		}
		return args[n-1]
	})
}

// with changes a statement, and fails if there is nothing to change any more.
func with(statement, old, new string) string {
	if strings.Count(statement, old) == 0 {
		log.Fatalf("no %q in %s", old, statement)
	}
	return strings.ReplaceAll(statement, old, new)
}

// Literals. Tokens and ids are written so that they are told apart in the output.
func id(n int) string       { return fmt.Sprintf("'00000000-0000-7000-8000-%012d'", n) }
func token(n int) string    { return fmt.Sprintf("'70000000-0000-4000-8000-%012d'", n) }
func slot(n int) string     { return fmt.Sprintf("'50000000-0000-4000-8000-%012d'", n) }
func alarm(n int) string    { return fmt.Sprintf("'a0000000-0000-4000-8000-%012d'", n) }
func array(s string) string { return "ARRAY[" + s + "]" }

const (
	q       = "'q'"
	second  = "1000"
	minute  = "60000"
	nothing = "''"
)

func insert(n int) string {
	return sql("insert_one", id(n), q, "'k'", "0", "0", "'0001-01-01Z'", "10", "'null'")
}
func ring() string           { return sql("ring", q, minute) }
func answer(a string) string { return sql("answer_bell", q, a) }
func take(s string) string   { return sql("take_slot", q, s, minute, strconv.Itoa(queue.SchemaVersion)) }
func free(s string) string   { return sql("free_slot", q, s) }
func next() string           { return sql("next", q) }
func claim(s, t, limit string) string {
	return sql("claim", q, s, t, minute, limit, nothing, "array_fill('-infinity'::timestamptz, ARRAY[21])", "array_fill('00000000-0000-0000-0000-000000000000'::uuid, ARRAY[21])")
}
func mark(s, state string) string { return sql("mark_slot", q, s, state, minute) }
func ringIfDue() string           { return sql("ring_if_due", q, minute) }
func arm(in, a string) string     { return sql("arm", q, in, a, minute) }
func extend(n int, t string) string {
	return sql("extend", array(id(n)), array("1"), array(t), minute)
}
func finish(n int, t, state string) string {
	return sql("finish", array(id(n)), array("1"), array(t), array(state), array("0"), array("0"), array("''"))
}

// longAgo is when a job is due that was committed late.
const longAgo = "'2020-01-01Z'"

var lower = sql("lower_floor", q, longAgo)

// look is the last look, and what its drain would do about it: seen holds whether it goes on.
func look() string { return "INSERT INTO doze.seen SELECT due FROM (" + next() + ") n" }

// reset empties the tables and makes a queue of n slots.
func reset(n int) string {
	return fmt.Sprintf(`TRUNCATE doze.jobs, doze.history, doze.keys, doze.slots, doze.bells, doze.queues, doze.seen;
  INSERT INTO doze.queues (queue, slots) VALUES ('q', %d);
  INSERT INTO doze.bells (queue) VALUES ('q');
  INSERT INTO doze.slots (queue, slot) SELECT 'q', generate_series(1, %[1]d);`, n)
}

// held gives a slot to a drain.
func held(n int, s string) string {
	return fmt.Sprintf("\n  UPDATE doze.slots SET state = 'open', token = %s, locked_until = now() + interval '1 hour' WHERE slot = %d;", s, n)
}

// running has a job claimed by t, with a lease that ended a second ago.
func running(n int, t string) string {
	return "\n  " + insert(n) + ";\n  UPDATE doze.jobs SET token = " + t + ", attempts = 1, locked_until = now() - interval '1 second' WHERE id = " + id(n) + ";"
}

// lost: a job is due, no drain that promised to look is there, none has been asked to come, and the
// one that left did not see it.
const lost = `SELECT EXISTS (SELECT FROM doze.jobs WHERE run_at <= now() AND locked_until <= now())
   AND NOT EXISTS (SELECT FROM doze.slots WHERE state = 'open') AND NOT EXISTS (SELECT FROM doze.bells WHERE bell_until > now())
   AND NOT EXISTS (SELECT FROM doze.seen WHERE due) AS broken`

type step struct{ name, sql string }

type session struct {
	name  string
	steps []step
}

// order is one permutation of steps, and what its last check must find.
type order struct {
	broken bool
	steps  string
}

type spec struct {
	name, why string
	setup     string
	sessions  []session
	orders    []order
}

var H, H2, H3 = slot(1), slot(2), slot(3)

func specs() []spec {
	enqueuer := session{"enqueuer", []step{{"ins", insert(1)}, {"ring", ring()}}}
	check := session{"check", []step{{"chk", lost}}}
	begin := func(prefix string) step { return step{prefix + "b", "BEGIN"} }
	commit := func(prefix string) step { return step{prefix + "c", "COMMIT"} }

	return []spec{
		{
			"good", "Insert, commit, ring; claim, free the slot, last look: every interleaving keeps the job.",
			reset(1) + held(1, H),
			[]session{
				enqueuer,
				{"drain", []step{{"claim", claim(H, token(1), "10")}, {"free", free(H)}, {"look", look()}}},
				check,
			},
			orders(false,
				"ins ring claim free look chk", "ins claim ring free look chk", "ins claim free ring look chk", "ins claim free look ring chk",
				"claim ins ring free look chk", "claim ins free ring look chk", "claim ins free look ring chk",
				"claim free ins ring look chk", "claim free ins look ring chk", "claim free look ins ring chk"),
		},
		{
			"naive", "Without the last look, a job that is committed and rung for before the slot is free is lost.",
			reset(1) + held(1, H),
			[]session{
				enqueuer,
				{"drain", []step{{"claim", claim(H, token(1), "10")}, {"free", free(H)}}},
				check,
			},
			append(orders(false,
				"ins ring claim free chk", "ins claim ring free chk", "ins claim free ring chk", "claim ins free ring chk", "claim free ins ring chk"),
				order{true, "claim ins ring free chk"}),
		},
		{
			"look_then_free", "The last look before the slot is free: the same window, only shorter.",
			reset(1) + held(1, H),
			[]session{
				enqueuer,
				{"drain", []step{{"claim", claim(H, token(1), "10")}, {"look", look()}, {"free", free(H)}}},
				check,
			},
			append(orders(false, "claim ins ring look free chk", "claim look free ins ring chk"),
				order{true, "claim look ins ring free chk"}),
		},
		{
			"free_if_none", "Look and free in one statement: the look is as old as the statement's snapshot, and waits for nothing.",
			reset(1) + held(1, H),
			[]session{
				enqueuer,
				{"drain", []step{{"freeif", free(H) + " AND NOT EXISTS (SELECT FROM doze.jobs WHERE run_at <= now() AND locked_until <= now())"}}},
				// Somebody else at the slot's row makes it wait between its look and its write.
				{"other", []step{begin("o"), {"lock", "SELECT slot FROM doze.slots FOR UPDATE"}, {"renew", mark(H, "'open'")}, commit("o")}},
				check,
			},
			orders(true, "ob lock freeif ins ring oc chk", "ob renew freeif ins ring oc chk"),
		},
		{
			"ring_inside", "The ring inside the transaction that adds the job, before its commit, promises what the drain cannot see.",
			reset(1) + held(1, H),
			[]session{
				{"enqueuer", []step{begin("e"), {"ins", insert(1)}, {"ring", ring()}, commit("e")}},
				{"drain", []step{{"claim", claim(H, token(1), "10")}, {"free", free(H)}, {"look", look()}}},
				check,
			},
			append(orders(true, "eb ins ring claim free look ec chk"), orders(false, "eb ins ec claim free look ring chk")...),
		},
		{
			"last_look", "A stranger's lock on the job's row hides it from a claim. The last look is a plain read, and sees it.",
			reset(1) + held(1, H),
			[]session{
				enqueuer,
				{"stranger", []step{begin("s"), {"lock", "SELECT id FROM doze.jobs FOR UPDATE"}, {"share", "SELECT id FROM doze.jobs FOR KEY SHARE"}, commit("s")}},
				{"drain", []step{
					{"claim", claim(H, token(1), "10")},
					{"claimu", with(claim(H, token(1), "10"), "FOR NO KEY UPDATE", "FOR UPDATE")},
					{"free", free(H)}, {"look", look()},
					{"again", take(H2)}, {"claim2", claim(H2, token(2), "10")}, {"free2", free(H2)},
				}},
				check,
			},
			append(
				orders(false, "ins ring sb lock claim free look sc chk",
					"ins ring sb share claim free sc chk"), // NO KEY UPDATE is not hidden by a foreign key's check
				orders(true, "ins ring sb lock claim free again claim2 free2 sc chk", // a claim as the last look
					"ins ring sb share claimu free sc chk")...),
		},
		{
			"start", "A start answers the bell, commits, and then looks for a slot. Both in one transaction, or the slot first, loses the job.",
			reset(1) + held(1, H) + "\n  UPDATE doze.bells SET bell_until = now() + interval '1 minute';", // somebody has rung, and this start is the answer
			[]session{
				enqueuer,
				{"starter", []step{begin("s"), {"answer", answer(nothing)}, {"take", take(H2)}, commit("s")}},
				{"holder", []step{{"free", free(H)}, {"look", look()}}},
				check,
			},
			append(
				orders(false, "answer take free look ins ring chk", "answer free take look ins ring chk", "answer free look ins ring take chk", "ins ring answer take free look chk"),
				orders(true, "sb answer take free look ins ring sc chk", "take free look ins ring answer chk")...),
		},
		{
			"saturated", "A drain that takes no more jobs marks its slot busy, commits, and rings if there is more. Without the mark the enqueuer relies on it; without the ring nobody comes.",
			reset(2) + held(1, H),
			[]session{
				enqueuer,
				{"drain", []step{{"claim", claim(H, token(1), "10")}, {"busy", mark(H, "'busy'")}, {"more", ringIfDue()}}},
				// While the drain runs what it has and does not look, an open mark is a false promise.
				{"check", []step{{"chk", with(lost, "state = 'open'", "state = 'open' AND false")}}},
			},
			append(
				orders(false, "claim ins ring busy more chk", "claim busy ins more ring chk", "claim busy more ins ring chk", "claim busy ins ring more chk"),
				orders(true, "claim ins ring chk", "claim ins ring busy chk")...),
		},
		{
			"claims", "Two claims under way at once take different jobs, and neither waits. Select and then update takes one twice.",
			reset(2) + held(1, H) + held(2, H2) + "\n  " + insert(1) + ";\n  " + insert(2) + ";\n  " + insert(3) + ";",
			[]session{
				{"one", []step{begin("a"), {"claim1", claim(H, token(1), "2")}, commit("a"), {"sel1", "SELECT id FROM doze.jobs WHERE token IS NULL ORDER BY id LIMIT 1"}, {"upd1", naiveClaim(1)}}},
				{"two", []step{begin("b"), {"claim2", claim(H2, token(2), "2")}, commit("b"), {"sel2", "SELECT id FROM doze.jobs WHERE token IS NULL ORDER BY id LIMIT 1"}, {"upd2", naiveClaim(2)}}},
				{"check", []step{
					{"chk", "SELECT count(*) FILTER (WHERE attempts = 1) <> 3 OR count(DISTINCT token) <> 2 AS broken FROM doze.jobs"},
					{"chkn", "SELECT bool_or(attempts > 1) AS broken FROM doze.jobs"},
				}},
			},
			append(
				orders(false, "ab claim1 claim2 ac chk", "ab bb claim1 claim2 bc ac chk", "ab bb claim2 claim1 ac bc chk", "claim1 claim2 chk"),
				orders(true, "sel1 sel2 upd1 upd2 chkn")...),
		},
		{
			"cancel", "A cancel meets a claim or a finish of its job: the job ends once, and its drain learns of it.",
			reset(1) + held(1, H) + "\n  " + insert(1) + ";",
			[]session{
				{"drain", []step{begin("d"), {"claim", claim(H, token(1), "1")}, {"done", finish(1, token(1), "'done'")}, commit("d"), {"renew", extend(1, token(1))}}},
				{"operator", []step{begin("o"), {"cancel", sql("cancel", id(1))}, commit("o")}},
				{"check", []step{
					{"chk", "SELECT (SELECT count(*) FROM doze.jobs) <> 0 OR (SELECT string_agg(state || attempts, ',') FROM doze.history) IS DISTINCT FROM 'cancelled1' AS broken"},
					{"chk0", "SELECT (SELECT count(*) FROM doze.jobs) <> 0 OR (SELECT string_agg(state || attempts, ',') FROM doze.history) IS DISTINCT FROM 'cancelled0' AS broken"},
					{"chkd", "SELECT (SELECT count(*) FROM doze.jobs) <> 0 OR (SELECT string_agg(state || attempts, ',') FROM doze.history) IS DISTINCT FROM 'done1' AS broken"},
				}},
			},
			orders(false,
				"db claim cancel dc renew done chk", // the claim is under way: the cancel waits, and ends the claimed job
				"ob cancel claim oc done chk0",      // the cancel is under way: the claim passes by
				"claim ob cancel done oc chk",       // the cancel is under way: the finish waits, and is refused
				"claim db done cancel dc chkd",      // the finish is under way: the cancel waits, and finds nothing
				"claim cancel renew done chk"),
		},
		{
			"reap", "A reap meets a renewal or a finish of a job whose lease has expired: whoever commits first wins. A reap that selects and then updates by id takes the job from a holder that has renewed it.",
			reset(1) + running(1, token(1)),
			[]session{
				{"reaper", []step{begin("r"), {"reap", sql("reap", "10")}, commit("r"), {"sel", "SELECT id FROM doze.jobs WHERE locked_until <= now() AND token IS NOT NULL"}, {"upd", "UPDATE doze.jobs SET token = NULL, locked_until = '-infinity', reaps = reaps + 1 WHERE id = " + id(1)}}},
				{"drain", []step{begin("d"), {"renew", extend(1, token(1))}, {"done", finish(1, token(1), "'done'")}, commit("d")}},
				{"check", []step{
					{"renewed", "SELECT NOT EXISTS (SELECT FROM doze.jobs WHERE token = " + token(1) + " AND locked_until > now() AND reaps = 0) AS broken"},
					{"finished", "SELECT EXISTS (SELECT FROM doze.jobs) OR (SELECT count(*) FROM doze.history WHERE state = 'done') <> 1 AS broken"},
					{"reaped", "SELECT EXISTS (SELECT FROM doze.history) OR NOT EXISTS (SELECT FROM doze.jobs WHERE token IS NULL AND reaps = 1) AS broken"},
				}},
			},
			append(
				orders(false,
					"db renew reap dc renewed", "renew reap renewed", "db renew reap dc reap renewed",
					"db done reap dc finished", "done reap finished",
					"rb reap renew rc reaped", "rb reap done rc reaped", "reap renew done reaped"),
				orders(true, "sel renew upd renewed")...),
		},
		{
			"alarm", "A start that an alarm brought takes down that alarm and no other. Taking down whatever is set loses an earlier one that was set meanwhile.",
			reset(1) + "\n  " + arm("3600000", alarm(1)) + ";",
			[]session{
				{"starter", []step{{"answer", answer(alarm(1))}, {"any", with(answer(alarm(1)), "b.armed_id = nullif("+alarm(1)+"::text, '')::uuid", "true")}}},
				{"leaver", []step{begin("l"), {"arm", arm(second, alarm(2))}, {"later", arm("7200000", alarm(2))}, commit("l")}},
				{"check", []step{
					{"chk", "SELECT armed_id IS DISTINCT FROM " + alarm(2) + "::uuid AS broken FROM doze.bells"},
				}},
			},
			append(
				orders(false, "lb arm answer lc chk", "arm answer chk", "answer arm chk", "answer later chk"),
				orders(true, "lb arm any lc chk",
					"later answer chk")...), // why an exit sets the alarm again: the one it relied on was taken down
		},
		{
			"floor", "Whoever raises the floor locks it first and then looks; whoever has committed what was due long ago lowers it after the commit, and locks it whatever it is. So neither misses the other.",
			reset(1),
			[]session{
				{"enqueuer", []step{begin("e"), {"ins", sql("insert_one", id(1), q, "'k'", "0", "0", longAgo, "10", "'null'")}, commit("e"), begin("l"),
					{"lower", lower}, {"oldest", sql("lower_floor_to_oldest", q)}, commit("l"), {"lowerif", with(lower, " OR "+longAgo+"::timestamptz < now() - interval '1 second'", "")}}},
				{"drain", []step{begin("r"), {"lock", sql("lock_floor", q)}, {"raise", sql("raise_floor", q)}, commit("r"),
					{"write", "UPDATE doze.bells SET floor = now() - interval '2 seconds'"}}}, // what was looked up before, for want of the lock
				{"check", []step{{"chk", "SELECT EXISTS (SELECT FROM doze.jobs j JOIN doze.bells q ON q.queue = j.queue WHERE j.run_at < q.floor) AS broken"}}},
			},
			append(
				orders(false,
					"eb ins rb lock raise rc ec lower chk", "eb ins rb lock raise ec lower rc chk", "eb ins rb lock ec lower raise rc chk", "eb ins ec rb lock raise lower rc chk",
					"eb ins ec lb lower rb lock lc raise rc chk", "eb ins ec lb oldest rb lock lc raise rc chk",
					"eb ins rb lock raise ec oldest rc chk", "eb ins rb lock raise rc ec oldest chk", "eb ins rb lock raise rc ec lowerif chk"),
				orders(true, "eb ins rb lock raise rc ec chk", // nobody lowers it
					"eb ins rb lock raise ec lowerif rc chk", // it is low enough, but about to be raised
					"eb ins ec lower write chk")...),         // looked up, and only then locked
		},
		{
			"watch", "A drain takes its watch back before its last look. The other way round, whoever enqueues in between relies on a watch that is about to go.",
			reset(1) + held(1, slot(1)) + "\n  " + arm(minute, alarm(1)) + ";",
			[]session{
				{"drain", []step{{"free", free(slot(1))}, {"forget", sql("unarm", q, alarm(1))},
					{"look", "INSERT INTO doze.seen SELECT next_ms >= 0 FROM (" + next() + ") n"}}},
				{"enq", []step{{"ins", sql("insert_one", id(1), q, "'k'", "0", "7200000", "'0001-01-01Z'", "10", "'null'")}, {"arm", arm("7200000", alarm(2))}}},
				{"check", []step{
					{"chk", "SELECT q.armed_id IS NULL AND NOT EXISTS (SELECT FROM doze.seen WHERE due) AS broken FROM doze.bells q"},
				}},
			},
			append(
				orders(false,
					"ins arm free forget look chk", "ins free arm forget look chk", "ins free forget arm look chk", "ins free forget look arm chk",
					"free ins arm forget look chk", "free ins forget arm look chk", "free ins forget look arm chk",
					"free forget ins arm look chk", "free forget ins look arm chk", "free forget look ins arm chk"),
				orders(true, "free look ins arm forget chk", "look free ins arm forget chk")...),
		},
	}
}

func naiveClaim(n int) string {
	return "UPDATE doze.jobs SET token = " + token(n) + ", locked_until = now() + interval '1 hour', attempts = attempts + 1 WHERE id = " + id(1)
}

func orders(broken bool, steps ...string) []order {
	all := make([]order, len(steps))
	for i, s := range steps {
		all[i] = order{broken, s}
	}
	return all
}

func main() {
	log.SetFlags(0)
	tables := flag.Bool("schema", false, "write the tables")
	dir := flag.String("dir", "", "folder to write specs to")
	flag.Parse()
	if *tables {
		script, err := migrations.Script("doze")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(script)
		fmt.Println("CREATE TABLE doze.seen (due boolean NOT NULL); -- what a drain's last look found")
		return
	}
	if *dir == "" {
		flag.Usage()
		os.Exit(2)
	}
	for _, s := range specs() {
		var b, want strings.Builder
		fmt.Fprintf(&b, "# %s\nsetup\n{\n  %s\n}\n", s.why, s.setup)
		for _, session := range s.sessions {
			fmt.Fprintf(&b, "session %s\n", session.name)
			for _, step := range session.steps {
				fmt.Fprintf(&b, "step %s { %s; }\n", step.name, step.sql)
			}
		}
		for _, o := range s.orders {
			fmt.Fprintf(&b, "permutation %s\n", o.steps)
			fmt.Fprintf(&want, "%t %s\n", o.broken, o.steps)
		}
		for suffix, text := range map[string]string{".spec": b.String(), ".want": want.String()} {
			if err := os.WriteFile(filepath.Join(*dir, s.name+suffix), []byte(text), 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
}
