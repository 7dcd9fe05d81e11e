package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

var (
	goodQueues = []string{"q", "image-worker", "a.b", "A_1", "0", strings.Repeat("x", 48), strings.Repeat("y", 64)}
	badQueues  = []string{"", " ", "Ünï✅", "' OR 1", " q", "q ", "q\n", "q\x00", ".q", "-q", "a b", "a/b", "a:b", strings.Repeat("x", 65), "\xff"}
)

func TestCheckQueue(t *testing.T) {
	for _, name := range goodQueues {
		if err := queue.CheckQueue(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range badQueues {
		var wrong *queue.FieldError
		if err := queue.CheckQueue(name); !errors.As(err, &wrong) || wrong.Field != "queue" || wrong.Rule == "" {
			t.Errorf("%q: %v, want a FieldError of queue", name, err)
		}
	}
}

func TestCheckKind(t *testing.T) {
	for _, kind := range []string{"k", "mail/send.v2", "App:Mail", strings.Repeat("x", 128)} {
		if err := queue.CheckKind(kind); err != nil {
			t.Errorf("%q: %v", kind, err)
		}
	}
	for _, kind := range []string{"", "/k", "a b", `App\Mail`, "ü", strings.Repeat("x", 129), "k\n"} {
		if err := queue.CheckKind(kind); err == nil {
			t.Errorf("%q was accepted", kind)
		}
	}
}

func TestCheckSchema(t *testing.T) {
	for _, name := range []string{"doze", "_x", "UPPER", "with-dash", strings.Repeat("s", 63), "a1"} {
		if err := queue.CheckSchema(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "1a", "pg_doze", "PG_x", "a b", `a"b`, "a.b", "a;b", "ü", strings.Repeat("s", 64), "a\x00", "a'", "$user"} {
		if err := queue.CheckSchema(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
		if _, err := queue.NewStore(name); err == nil && name != "" {
			t.Errorf("NewStore(%q) was accepted", name)
		}
	}
}

func zone(east int) *time.Location { return time.FixedZone("", east) }

// What Check lets through the database takes, and what it refuses names the field.
func TestCheck_AgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		field  string // empty: good
		change func(*queue.NewJob)
	}{
		{"", func(j *queue.NewJob) {}},
		{"", func(j *queue.NewJob) { j.Priority = -10 }},
		{"", func(j *queue.NewJob) { j.Priority = 10 }},
		{"priority", func(j *queue.NewJob) { j.Priority = 11 }},
		{"priority", func(j *queue.NewJob) { j.Priority = math.MinInt32 }},
		{"", func(j *queue.NewJob) { j.MaxAttempts = 1 }},
		{"", func(j *queue.NewJob) { j.MaxAttempts = 1000 }},
		{"max_attempts", func(j *queue.NewJob) { j.MaxAttempts = 0 }},
		{"max_attempts", func(j *queue.NewJob) { j.MaxAttempts = 1001 }},
		{"", func(j *queue.NewJob) { j.Delay = queue.MaxDelay }},
		{"delay", func(j *queue.NewJob) { j.Delay = queue.MaxDelay + 1 }},
		{"delay", func(j *queue.NewJob) { j.Delay = -1 }},
		{"", func(j *queue.NewJob) { j.RunAt = time.Unix(0, 0) }},
		{"", func(j *queue.NewJob) { j.RunAt = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC) }},
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC) }},
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) }},
		// The year is that of the time in UTC, which is what is sent, whatever the year is where it was written.
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(9999, 12, 31, 23, 59, 59, 0, zone(-1)) }},
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(9999, 12, 31, 23, 59, 59, 0, zone(-23*3600-59*60)) }},
		{"", func(j *queue.NewJob) { j.RunAt = time.Date(10000, 1, 1, 13, 59, 59, 0, zone(14*3600)) }},
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(1970, 1, 1, 0, 0, 0, 0, zone(1)) }},
		{"run_at", func(j *queue.NewJob) { j.RunAt = time.Date(1970, 1, 1, 13, 59, 59, 0, zone(14*3600)) }},
		{"", func(j *queue.NewJob) { j.RunAt = time.Date(1969, 12, 31, 12, 0, 0, 0, zone(-12*3600)) }},
		{"", func(j *queue.NewJob) { j.Key = strings.Repeat("k", queue.MaxKey) }},
		{"", func(j *queue.NewJob) { j.Key = "Ünï✅ ' OR 1" }},
		{"key", func(j *queue.NewJob) { j.Key = strings.Repeat("k", queue.MaxKey+1) }},
		{"key", func(j *queue.NewJob) { j.Key = "a\x00b" }},
		{"key", func(j *queue.NewJob) { j.Key = "a\xffb" }},
		{"", func(j *queue.NewJob) { j.Key, j.Hold = "hold", queue.MaxDelay }},
		{"hold", func(j *queue.NewJob) { j.Hold = -time.Second }},
		{"hold", func(j *queue.NewJob) { j.Hold = queue.MaxDelay + 1 }},
		{"queue", func(j *queue.NewJob) { j.Queue = "" }},
		{"kind", func(j *queue.NewJob) { j.Kind = "" }},
		{"payload", func(j *queue.NewJob) { j.Payload = nil }},
		{"payload", func(j *queue.NewJob) { j.Payload = json.RawMessage("{") }},
		{"payload", func(j *queue.NewJob) { j.Payload = json.RawMessage("{} {}") }},
		{"payload", func(j *queue.NewJob) { j.Payload = json.RawMessage("\"\xff\"") }},
		{"payload", func(j *queue.NewJob) { j.Payload = json.RawMessage("\"a\x00b\"") }},
		{"payload", func(j *queue.NewJob) {
			j.Payload = json.RawMessage(strings.Repeat("[", 513) + strings.Repeat("]", 513))
		}},
		{"payload", func(j *queue.NewJob) { j.Payload = json.RawMessage(strings.Repeat("[", 1<<20)) }},
	} {
		j := newJob(c.change)
		err := j.Check(1 << 20)
		var wrong *queue.FieldError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%+v: %v", j, err)
		case c.field == "":
			w.insert(j)
			job, err := w.store.Get(w.ctx, w.pool, j.ID)
			if err != nil {
				t.Errorf("%+v: %v", j, err)
			} else if !j.RunAt.IsZero() && !job.RunAt.Equal(j.RunAt.Truncate(time.Microsecond)) {
				t.Errorf("due %v came back as %v", j.RunAt, job.RunAt)
			}
			// And as JSON, which is how it is shown.
			if _, err := json.Marshal(job.RunAt.UTC()); err != nil {
				t.Error(err)
			}
		case !errors.As(err, &wrong) || wrong.Field != c.field || wrong.Index != -1:
			t.Errorf("want %s refused, got %v", c.field, err)
		case c.field == "payload" && wrong.Value != "":
			t.Errorf("the error shows a payload: %v", err)
		}
	}
	j := newJob(func(j *queue.NewJob) { j.Payload = json.RawMessage(`"` + strings.Repeat("x", 100) + `"`) })
	if err := j.Check(101); err == nil {
		t.Error("102 bytes passed a limit of 101")
	}
	if err := j.Check(102); err != nil {
		t.Error(err)
	}
}

func TestFieldError_IsShortAndQuoted(t *testing.T) {
	err := queue.CheckQueue(strings.Repeat("€", 1000) + "\x00")
	if text := err.Error(); len(text) > 300 || strings.ContainsRune(text, 0) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// What Check accepts PostgreSQL's json takes, and gives back as it was. What Check refuses
// PostgreSQL refuses too, but for limits that are ours: the depth.
func FuzzCheck_PayloadAgainstPostgres(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, ` [1, 2.5e-3, -0, "x"] `, `{"a":{"a":1},"a":2}`, `"\u0000\ud800\udc00\ud800"`, `"\x"`, `01`, `1.`, `.5`, `-`, `1e`, `+1`, `nul`, `"a`, `[1,]`,
		`{"a"}`, `{,}`, "\"\x00\"", "\"\t\"", "\"\x7f\"", "\"\xff\"", "\xef\xbb\xbf{}", "\v{}", "\u00a0{}", "[1] \n\r\t", `"` + "\u2028" + `"`, `"\/\b\f\n\r\t\"\\"`, `"\uD83D\uDE00"`, `"\u12"`,
		`NaN`, `Infinity`, `'a'`, `{a:1}`, `/**/1`, `1e999999`, `123456789012345678901234567890`, "[" + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "]",
		"", " ", "[\"\\\"]\"]", `["\\"]`, "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"",
	} {
		f.Add([]byte(seed))
	}
	pool := dbtest.Pool(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		j := newJob(func(j *queue.NewJob) { j.Payload = payload })
		ours := j.Check(0)
		var back string
		theirs := pool.QueryRow(context.Background(), "SELECT ($1::text)::json::text", string(payload)).Scan(&back)
		if theirs != nil && code(theirs) == "" {
			t.Skip(theirs) // not an answer of the server
		}
		switch {
		case ours == nil && theirs != nil:
			t.Errorf("%q passes the check, and PostgreSQL says %v", payload, theirs)
		case ours == nil && back != string(payload):
			t.Errorf("%q came back as %q", payload, back)
		case ours != nil && theirs == nil && !strings.Contains(ours.Error(), "nested deeper"):
			t.Errorf("%q is fine with PostgreSQL, and the check says %v", payload, ours)
		}
	})
}
