// Package webhooks is an example: a door for GitHub's webhooks that answers as soon as the
// delivery is stored. GitHub waits ten seconds and then gives up, so the work is
// better done by a job.
//
// Each delivery becomes a job of the kind "github." and the event's name, such as
// "github.push". Its payload is the body byte for byte.
package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/queue"
)

// Queue is where the jobs go.
const Queue = "webhooks"

// largest is what GitHub sends at most.
const largest = 25 << 20

var (
	eventName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	deliveryID = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

// Handler receives POST /v1/hooks/github. Secret is the one that is set with the webhook at
// GitHub; without one anybody could enqueue, so an empty one is an error. A
// delivery that is sent again is a duplicate, by its X-GitHub-Delivery.
//
// The client's MaxPayload bounds a delivery; GitHub sends up to 25 MB.
func Handler(c *enqueue.Client, secret string) (http.Handler, error) {
	if c == nil {
		return nil, errors.New("webhooks: client is nil")
	}
	if secret == "" {
		return nil, errors.New("webhooks: secret is empty; set the webhook's secret here and at GitHub")
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/hooks/github", &github{client: c, secret: []byte(secret)})
	return mux, nil
}

type github struct {
	client *enqueue.Client
	secret []byte
}

func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	added, err := g.receive(w, r)
	if err != nil {
		enqueue.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !added.Duplicate {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": added.ID, "duplicate": added.Duplicate})
}

func (g *github) receive(w http.ResponseWriter, r *http.Request) (enqueue.Added, error) {
	given, err := signature(r)
	if err != nil {
		return enqueue.Added{}, err // before the body is read
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return enqueue.Added{}, fmt.Errorf("%w: the body has more than %d bytes", enqueue.ErrTooLarge, tooLong.Limit)
	} else if err != nil {
		return enqueue.Added{}, wrong("body", "it did not arrive whole")
	}
	mac := hmac.New(sha256.New, g.secret)
	mac.Write(body)
	if !hmac.Equal(given, mac.Sum(nil)) {
		return enqueue.Added{}, enqueue.ErrUnauthorized
	}

	// From here on it is GitHub, or somebody who has the secret.
	if found, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || found != "application/json" {
		return enqueue.Added{}, wrong("Content-Type", "choose application/json in the webhook's settings at GitHub")
	}
	event, delivery := r.Header.Get("X-GitHub-Event"), r.Header.Get("X-GitHub-Delivery")
	switch {
	case !eventName.MatchString(event):
		return enqueue.Added{}, wrong("X-GitHub-Event", "want an event's name: 1 to 64 of a-z, 0-9 and _")
	case !deliveryID.MatchString(delivery):
		return enqueue.Added{}, wrong("X-GitHub-Delivery", "want a delivery's id: 1 to 64 letters, digits and -")
	case len(body) == 0:
		return enqueue.Added{}, wrong("payload", "want JSON")
	}
	return g.client.AddJob(r.Context(), "github."+event, body, enqueue.On(Queue), enqueue.Key(delivery))
}

// signature is what the header says, which may be wrong. One that is missing or malformed is refused.
func signature(r *http.Request) ([]byte, error) {
	text, ok := strings.CutPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256=")
	sum, err := hex.DecodeString(text)
	if !ok || err != nil || len(sum) != sha256.Size {
		return nil, enqueue.ErrUnauthorized
	}
	return sum, nil
}

func wrong(field, rule string) error {
	return &queue.FieldError{Index: -1, Field: field, Rule: rule}
}
