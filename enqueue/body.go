package enqueue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dozequeue/doze/queue"
)

// A job as the HTTP API takes it. Every member is checked strictly: a name that is not known, or
// given twice, is more often a slip than meant, and would be passed over in silence.
type jobBody struct {
	kind    string
	payload json.RawMessage
	key     string
	keyed   bool
	signed  bool // sent by a caller who is [Caller.Signed]
	queue   string
	options []Option // all but the key
}

func (b *jobBody) entry() RawEntry {
	options := b.options
	if b.keyed {
		options = append(options, Key(b.key))
	}
	if b.signed {
		options = append(options, holdFor(copyGood))
	}
	return RawEntry{Kind: b.kind, Payload: b.payload, Options: options}
}

const members = "kind, payload, queue, delay, run_at, key, priority and max_attempts"

// readJob reads one job from text, which holds nothing else.
func readJob(text []byte) (jobBody, error) {
	b := jobBody{queue: queue.DefaultQueue}
	if !utf8.Valid(text) {
		return b, fmt.Errorf("%w: not UTF-8", errJSON)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := expect(d, '{'); err != nil {
		return b, err
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return b, syntaxError(err, d)
		}
		name, _ := token.(string) // in an object, before a value
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return b, syntaxError(err, d)
		}
		if seen[name] {
			return b, wrong(name, "given twice")
		}
		seen[name] = true
		if err := b.set(name, value); err != nil {
			return b, err
		}
	}
	if err := expect(d, '}'); err != nil {
		return b, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return b, fmt.Errorf("%w: something follows the job", errJSON)
	}
	switch {
	case !seen["kind"]:
		return b, wrong("kind", "missing")
	case seen["delay"] && seen["run_at"]:
		return b, wrong("delay", "given with run_at; give one of them")
	}
	return b, nil
}

// set takes one member. The payload keeps the very bytes it came in.
func (b *jobBody) set(name string, value json.RawMessage) error {
	if name == "payload" {
		b.payload = value
		return nil
	}
	option := func(o Option) { b.options = append(b.options, o) }
	switch name {
	case "kind":
		return readString(name, value, &b.kind)
	case "queue":
		err := readString(name, value, &b.queue)
		option(On(b.queue))
		return err
	case "key":
		b.keyed = true
		return readString(name, value, &b.key)
	case "delay":
		var text string
		if err := readString(name, value, &text); err != nil {
			return err
		}
		delay, err := time.ParseDuration(text)
		if err != nil {
			return wrong(name, `want a duration such as "90s" or "1h30m"`)
		}
		option(In(delay))
	case "run_at":
		var text string
		if err := readString(name, value, &text); err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || at.IsZero() {
			return wrong(name, `want a time such as "2026-01-31T08:00:00Z" (RFC 3339)`)
		}
		option(At(at))
	case "priority":
		var n int
		if err := readInt(name, value, &n); err != nil {
			return err
		}
		option(Priority(n))
	case "max_attempts":
		var n int
		if err := readInt(name, value, &n); err != nil {
			return err
		}
		option(MaxAttempts(n))
	default:
		return wrong(short(name), "unknown; a job has "+members)
	}
	return nil
}

func readString(name string, value json.RawMessage, into *string) error {
	if value[0] != '"' || json.Unmarshal(value, into) != nil {
		return wrong(name, "want a string")
	}
	// Half a surrogate pair is decoded to U+FFFD, which would make one of two keys.
	if strings.ContainsRune(*into, utf8.RuneError) {
		return wrong(name, "it holds half a surrogate pair or U+FFFD, so it was damaged on its way")
	}
	return nil
}

func readInt(name string, value json.RawMessage, into *int) error {
	if value[0] == 'n' || json.Unmarshal(value, into) != nil { // null would pass unnoticed
		return wrong(name, "want a whole number")
	}
	return nil
}

// readArray reads a JSON array of jobs, and readLines jobs of a line each. Both stop
// at the first error, and after limit jobs.
func readArray(text []byte, limit int) ([]jobBody, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := expect(d, '['); err != nil {
		return nil, err
	}
	var jobs []jobBody
	for d.More() {
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, &indexError{len(jobs), syntaxError(err, d)}
		}
		var err error
		if jobs, err = appendJob(jobs, value, limit); err != nil {
			return nil, err
		}
	}
	if err := expect(d, ']'); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the array", errJSON)
	}
	return jobs, nil
}

func readLines(text []byte, limit int) ([]jobBody, error) {
	var jobs []jobBody
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var err error
		if jobs, err = appendJob(jobs, line, limit); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

func appendJob(jobs []jobBody, text []byte, limit int) ([]jobBody, error) {
	if len(jobs) == limit {
		return nil, fmt.Errorf("%w: more than %d jobs; split the batch", ErrTooLarge, limit)
	}
	job, err := readJob(text)
	if err != nil {
		return nil, at(len(jobs), err)
	}
	return append(jobs, job), nil
}

// at says which job of a batch an error is about.
func at(index int, err error) error {
	var field *queue.FieldError
	if errors.As(err, &field) {
		field.Index = index
		return err
	}
	return &indexError{index, err}
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return syntaxError(err, d)
	}
	if token != want {
		return fmt.Errorf("%w of the right shape: want %s at byte %d", errJSON, want, d.InputOffset())
	}
	return nil
}

func syntaxError(err error, d *json.Decoder) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", errJSON)
	}
	return fmt.Errorf("%w: wrong after byte %d", errJSON, d.InputOffset())
}

func wrong(field, rule string) error {
	return &queue.FieldError{Index: -1, Field: field, Rule: rule}
}

// short cuts a name that the client made up.
func short(name string) string {
	const most = 40
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// readBody reads the body of a request, whose length is bounded already.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, nil
}

func bodyError(err error) error {
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		return fmt.Errorf("%w: the body has more than %d bytes", ErrTooLarge, limit.Limit)
	}
	return fmt.Errorf("%w: the body did not arrive whole", errJSON)
}
