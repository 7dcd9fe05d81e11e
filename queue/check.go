package queue

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a job's fields. The database holds most of them too.
const (
	MinPriority = -10
	MaxPriority = 10
	// MaxMaxAttempts is the most attempts that a job may ask for.
	MaxMaxAttempts = 1000
	// MaxKey is the most bytes of a key.
	MaxKey = 512
	// MaxError is the most bytes kept of an error.
	MaxError = 8192
	// MaxDepth is how deep a payload's arrays and objects may nest.
	// PostgreSQL's parser recurses, and refuses somewhere in the thousands.
	MaxDepth = 512
	// MaxDelay is the longest delay and hold: ten years.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// FieldError says which field is wrong, and what it must be. It never holds a
// payload.
type FieldError struct {
	// Index of the job among those given, -1 if there was only one.
	Index int
	// Field is its name in the HTTP API.
	Field string
	// Value that was given, cut short and quoted; empty where it is not to be shown.
	Value string
	// Rule that it breaks.
	Rule string
}

func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Index >= 0 {
		fmt.Fprintf(&b, "job %d: ", e.Index)
	}
	b.WriteString(e.Field)
	if e.Value != "" {
		b.WriteString(" " + e.Value)
	}
	b.WriteString(": " + e.Rule)
	return b.String()
}

func fieldError(field, value, rule string) *FieldError {
	const shown = 80
	if len(value) > shown {
		value = strings.ToValidUTF8(value[:shown], "") + "…"
	}
	return &FieldError{Index: -1, Field: field, Value: fmt.Sprintf("%q", value), Rule: rule}
}

// isName reports whether name is 1 to most letters, digits and these marks, with no mark first. No regular expression: it
// runs twice for each job of a batch.
func isName(name string, most int, marks string) bool {
	if len(name) == 0 || len(name) > most {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && strings.IndexByte(marks, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// CheckQueue returns a [*FieldError] unless name can name a queue: 1 to 64
// ASCII letters, digits and . _ - with a letter or digit first. Such names
// also fit URLs, metrics and timers outside.
func CheckQueue(name string) error {
	if !isName(name, 64, "_.-") {
		return fieldError("queue", name, "want 1 to 64 letters, digits and . _ - (ASCII), the first a letter or digit")
	}
	return nil
}

// CheckKind returns a [*FieldError] unless kind can name a kind of job: 1 to
// 128 ASCII letters, digits and . _ : / - with a letter or digit first.
func CheckKind(kind string) error {
	if !isName(kind, 128, "_.:/-") {
		return fieldError("kind", kind, "want 1 to 128 letters, digits and . _ : / - (ASCII), the first a letter or digit")
	}
	return nil
}

// Check returns a [*FieldError] for the first field that the database would
// refuse, or that is out of its range. The payload may have maxPayload bytes at
// most; zero means no limit but PostgreSQL's.
func (n *NewJob) Check(maxPayload int) error {
	if err := CheckKind(n.Kind); err != nil {
		return err
	}
	if err := CheckQueue(n.Queue); err != nil {
		return err
	}
	if n.Priority < MinPriority || n.Priority > MaxPriority {
		return fieldError("priority", fmt.Sprint(n.Priority), fmt.Sprintf("want %d (first) to %d", MinPriority, MaxPriority))
	}
	if n.MaxAttempts < 1 || n.MaxAttempts > MaxMaxAttempts {
		return fieldError("max_attempts", fmt.Sprint(n.MaxAttempts), fmt.Sprintf("want 1 to %d", MaxMaxAttempts))
	}
	if n.Delay < 0 || n.Delay > MaxDelay {
		return fieldError("delay", n.Delay.String(), fmt.Sprintf("want 0 to %v", MaxDelay))
	}
	// The year in UTC, since that is how it is stored and shown; RFC 3339 knows none after 9999.
	if year := n.RunAt.UTC().Year(); !n.RunAt.IsZero() && (year < 1970 || year > 9999) {
		return fieldError("run_at", n.RunAt.Format(time.RFC3339), "want a time from 1970 to 9999 in UTC")
	}
	if len(n.Key) > MaxKey || !utf8.ValidString(n.Key) || strings.ContainsRune(n.Key, 0) {
		return &FieldError{Index: -1, Field: "key", Rule: fmt.Sprintf("want at most %d bytes of UTF-8 without NUL", MaxKey)}
	}
	if n.Hold < 0 || n.Hold > MaxDelay {
		return fieldError("hold", n.Hold.String(), fmt.Sprintf("want 0 to %v", MaxDelay))
	}
	return checkPayload(n.Payload, maxPayload)
}

// checkPayload accepts what PostgreSQL's json type accepts: JSON in UTF-8.
func checkPayload(payload json.RawMessage, limit int) error {
	wrong := func(rule string) error { return &FieldError{Index: -1, Field: "payload", Rule: rule} }
	switch {
	case len(payload) == 0:
		return wrong("want JSON; use null for none")
	case limit > 0 && len(payload) > limit:
		return wrong(fmt.Sprintf("%d bytes, want at most %d; store large data elsewhere and enqueue a reference", len(payload), limit))
	case !utf8.Valid(payload):
		return wrong("want valid UTF-8")
	case depth(payload) > MaxDepth:
		return wrong(fmt.Sprintf("nested deeper than %d", MaxDepth))
	case !json.Valid(payload):
		return wrong("want valid JSON")
	}
	return nil
}

// depth of the arrays and objects in a JSON text.
func depth(text []byte) int {
	deepest, now := 0, 0
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// storable makes any text fit a text column: valid UTF-8, no NUL, at most MaxError
// bytes. A panic's message can hold anything, and a finish that the database
// refuses would leave its job stuck.
func storable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", `\0`)
	if len(text) <= MaxError {
		return text
	}
	const mark = "… (cut)"
	cut := MaxError - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
