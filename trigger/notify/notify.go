package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

//go:embed sql/notify.sql
var file string

// statement is the file without its comment, which need not travel with each wake.
var statement = file[strings.Index(file, "SELECT "):]

// Config of a [Trigger]. The zero value is ready.
type Config struct {
	// Schema of Doze's tables. Default [queue.DefaultSchema]. The channel is named after it.
	Schema string
}

// Trigger sends wakes with NOTIFY. Each process that listens gets each wake, and the queue's slots bound how many
// of them drain. A wake that nobody listens for is lost without an error; the next look of a
// resident process, which also comes with its start, or the sweep makes up for it.
type Trigger struct {
	db      queue.DB
	channel string
}

var (
	_ queue.Trigger = (*Trigger)(nil)
	_ queue.Alarm   = (*Trigger)(nil)
)

// New returns a trigger that sends over db, usually the *pgxpool.Pool that jobs are enqueued with. Nothing is
// sent yet. It returns a [*queue.FieldError] for a name that cannot name a schema.
func New(db queue.DB, cfg Config) (*Trigger, error) {
	schema := cmp.Or(cfg.Schema, queue.DefaultSchema)
	if err := queue.CheckSchema(schema); err != nil {
		return nil, err
	}
	return &Trigger{db: queue.Unnamed(db), channel: Channel(schema)}, nil
}

// Fire sends the wake, in a transaction of its own and one round trip, and returns when that is committed. It
// returns an error if the database did not take it or the context has ended, and for a wake without a queue.
func (t *Trigger) Fire(ctx context.Context, wake queue.Wake) error {
	body, err := wire.Encode(wake)
	if err != nil {
		return err
	}
	return t.send(ctx, string(body))
}

// Set hands the alarm over to whoever listens, at once: the drain that it starts finds nothing due, takes this
// alarm down and sets one in its own process for the queue's next due time. So in is not
// looked at. It returns an error as [Trigger.Fire] does.
func (t *Trigger) Set(ctx context.Context, wake queue.Wake, in time.Duration) error {
	return t.Fire(ctx, wake)
}

// Probe sends a message that is no wake, by which a process that listens tells whether it hears. Other
// listeners take no notice of it.
func (t *Trigger) Probe(ctx context.Context, token string) error { return t.send(ctx, probe+token) }

// Probed returns the token if a message was sent by [Trigger.Probe], and reports whether it was. Any
// other message is a wake, as handler.ParseWake reads it.
func Probed(message string) (token string, ok bool) { return strings.CutPrefix(message, probe) }

// probe begins a message that is no JSON, hence no wake.
const probe = "probe "

func (t *Trigger) send(ctx context.Context, message string) error {
	if _, err := t.db.Exec(ctx, statement, t.channel, message); err != nil {
		return fmt.Errorf("trigger: notify %s: %w", t.channel, err)
	}
	return nil
}

// Channel is the name of the channel for the queues of a schema, empty for [queue.DefaultSchema]: the schema's
// name and _wake. PostgreSQL allows 63 bytes, so of a long name the end is replaced by a hash.
func Channel(schema string) string {
	const most, suffix = 63, "_wake"
	schema = cmp.Or(schema, queue.DefaultSchema)
	if len(schema)+len(suffix) > most {
		sum := sha256.Sum256([]byte(schema))
		hash := "_" + hex.EncodeToString(sum[:8])
		schema = schema[:most-len(suffix)-len(hash)] + hash
	}
	return schema + suffix
}
