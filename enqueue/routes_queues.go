package enqueue

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/dozequeue/doze/queue"
)

// queueCounts is one queue as the HTTP API shows it.
type queueCounts struct {
	Queue   string  `json:"queue"`
	Paused  bool    `json:"paused"`
	Slots   int     `json:"slots"`
	Held    int     `json:"held"`
	Queued  int64   `json:"queued"`
	Due     int64   `json:"due"`
	Running int64   `json:"running"`
	Failed  int64   `json:"failed"`
	Oldest  float64 `json:"oldest_seconds"`
}

func (a *api) listQueues(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	all, err := a.client.store.Queues(r.Context(), a.client.db)
	if err != nil {
		return err
	}
	answer := []queueCounts{}
	for _, c := range all {
		if caller.mayQueue(c.Queue) {
			answer = append(answer, queueCounts{c.Queue, c.Paused, c.Slots, c.Held, c.Queued, c.Due, c.Running, c.Failed, c.Oldest.Seconds()})
		}
	}
	respond(w, http.StatusOK, answer)
	return nil
}

func (a *api) pauseQueue(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	name, err := a.changeQueue(r, caller, a.client.store.Pause)
	if err != nil {
		return err
	}
	respond(w, http.StatusOK, map[string]any{"queue": name, "paused": true})
	return nil
}

func (a *api) resumeQueue(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	name, err := a.changeQueue(r, caller, a.client.store.Resume)
	if err != nil {
		return err
	}
	_ = a.client.ringAndFire(r.Context(), []toRing{{queue: name}}, queue.ReasonResume)
	respond(w, http.StatusOK, map[string]any{"queue": name, "paused": false})
	return nil
}

func (a *api) changeQueue(r *http.Request, caller *Caller, op func(context.Context, queue.DB, string) error) (string, error) {
	name := chi.URLParam(r, "queue")
	if err := queue.CheckQueue(name); err != nil {
		return "", err
	}
	if !caller.mayQueue(name) || len(caller.Kinds) > 0 { // who may use some kinds only must not stop the others
		return "", fmt.Errorf("%w: this key may not pause or resume queue %q", ErrForbidden, name)
	}
	return name, op(r.Context(), a.client.db, name)
}
