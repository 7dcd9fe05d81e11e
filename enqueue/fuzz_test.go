package enqueue

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// FuzzReadJob: nothing that comes as a body panics, and what passes the checks here is
// taken by PostgreSQL and comes back byte for byte.
func FuzzReadJob(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"k"}`,
		`{"kind":"k","payload":{"id":9007199254740993, "a":"<&>", "a" : 2}}`,
		`{"kind":"mail/send","queue":"q.1","delay":"1h0.5ms","key":"\ud83d\ude00","priority":-10,"max_attempts":1000,"payload":[]}`,
		`{"kind":"k","run_at":"9999-12-31T23:59:59.999999999-23:59","payload":"\u0000"}`,
		`{"kind":"k","run_at":"1970-01-01T00:00:00+14:00","payload":1e400}`,
		`{"kind":"k","payload":"\ud800\udc00\ud800"}`,
		`{"kind":"k","payload":"` + "\u2028\x7f\\/" + `"}`,
		`{"kind":"k","payload":` + strings.Repeat("[", 512) + strings.Repeat("]", 512) + `}`,
		`{"kind":"k","payload":-0.0E-0 }`,
		"{\"kind\":\"k\",\"payload\":\t{ } \r\n}",
	} {
		f.Add([]byte(seed))
	}
	b := setup(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		job, err := readJob(body)
		if err != nil {
			if text := err.Error(); !utf8.ValidString(text) || len(text) > 500 {
				t.Errorf("error %q", text)
			}
			return
		}
		batch, err := b.client.one(job.entry())
		if err != nil {
			return
		}
		tx, err := b.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer rollback(t.Context(), tx)
		inserted, err := b.store.Insert(t.Context(), tx, batch.jobs, false)
		if err != nil {
			t.Fatalf("passed here and not there: %v: %q", err, body)
		}
		stored, err := b.store.Get(t.Context(), tx, inserted[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		want := job.payload
		if want == nil {
			want = json.RawMessage("null")
		}
		if !bytes.Equal(stored.Payload, want) || !json.Valid(stored.Payload) || bytes.Count(body, stored.Payload) == 0 && job.payload != nil {
			t.Errorf("stored %q of %q", stored.Payload, body)
		}
		if stored.Kind != job.kind || stored.Queue != job.queue || stored.Key != job.key {
			t.Errorf("stored %+v of %q", stored, body)
		}
	})
}

// FuzzParseKeys: what is read never lets in a name or a list entry that breaks the rules.
func FuzzParseKeys(f *testing.F) {
	_, hash := NewKey()
	f.Add("ann:" + hash)
	f.Add("ann:" + hash + ":queues=a|b:kinds=x:y,bo:" + strings.Repeat("0", 64))
	f.Add(uuid.NewString())
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if err != nil {
			return
		}
		for _, k := range keys {
			if !keyName.MatchString(k.Name) {
				t.Errorf("name %q", k.Name)
			}
			for _, q := range k.Queues {
				if queue.CheckQueue(q) != nil {
					t.Errorf("queue %q", q)
				}
			}
			for _, kind := range k.Kinds {
				if queue.CheckKind(kind) != nil {
					t.Errorf("kind %q", kind)
				}
			}
		}
	})
}
