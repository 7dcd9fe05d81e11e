package enqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// addedJob is one answer to an enqueue.
type addedJob struct {
	ID        uuid.UUID `json:"id"`
	Duplicate bool      `json:"duplicate"`
}

const keyHeader = "Idempotency-Key"

func (a *api) addJob(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	if _, err := mediaType(r, "application/json"); err != nil {
		return err
	}
	text, err := readBody(r)
	if err != nil {
		return err
	}
	job, err := readJob(text)
	if err != nil {
		return err
	}
	if values := r.Header.Values(keyHeader); len(values) > 0 {
		switch {
		case len(values) > 1 || job.keyed && job.key != values[0]:
			return wrong("key", "the header "+keyHeader+" and the body give different keys; give one")
		case caller.Signed && !job.keyed:
			return wrong("key", "given by the header "+keyHeader+", which the signature does not cover; put it into the body")
		}
		job.key, job.keyed = values[0], true
	}
	if err := allowed(caller, &job); err != nil {
		return err
	}
	entry := job.entry()
	added, err := a.client.AddJob(r.Context(), entry.Kind, entry.Payload, entry.Options...)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if added.Duplicate {
		status = http.StatusOK
	}
	respond(w, status, addedJob{added.ID, added.Duplicate})
	return nil
}

func (a *api) addBatch(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	lines := []string{"application/x-ndjson", "application/ndjson", "application/jsonl"}
	found, err := mediaType(r, append([]string{"application/json"}, lines...)...)
	if err != nil {
		return err
	}
	if r.Header.Get(keyHeader) != "" {
		return wrong(keyHeader, "it stands for the key of a single job; give each job of a batch its own key")
	}
	text, err := readBody(r)
	if err != nil {
		return err
	}
	read := readLines
	if found == "application/json" {
		read = readArray
	}
	jobs, err := read(text, a.cfg.MaxJobs)
	if err != nil {
		return err
	}
	entries := make([]RawEntry, len(jobs))
	for i := range jobs {
		if err := allowed(caller, &jobs[i]); err != nil {
			return at(i, err)
		}
		entries[i] = jobs[i].entry()
	}
	added, err := a.client.AddJobs(r.Context(), entries)
	if err != nil {
		return err
	}
	status, answer := http.StatusOK, make([]addedJob, len(added))
	for i, one := range added {
		answer[i] = addedJob{one.ID, one.Duplicate}
		if !one.Duplicate {
			status = http.StatusCreated
		}
	}
	respond(w, status, answer)
	return nil
}

func (a *api) getJob(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	job, err := a.find(r, caller)
	if err != nil {
		return err
	}
	return respondJob(w, job)
}

func (a *api) cancelJob(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	job, err := a.change(r, caller, a.client.store.Cancel)
	if err != nil {
		return err
	}
	return respondJob(w, job)
}

func (a *api) retryJob(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	job, err := a.change(r, caller, a.client.store.Retry)
	if err != nil {
		return err
	}
	_ = a.client.ringAndFire(r.Context(), []toRing{{job.Queue, job.RunAt}}, queue.ReasonResume)
	return respondJob(w, job)
}

// find returns the job that the path names. One that the caller may not see is not told from
// one that is not there.
func (a *api) find(r *http.Request, caller *Caller) (queue.Job, error) {
	id, err := jobID(r)
	if err != nil {
		return queue.Job{}, err
	}
	job, err := a.client.store.Get(r.Context(), a.client.db, id)
	if err == nil && !(caller.mayQueue(job.Queue) && caller.mayKind(job.Kind)) {
		return queue.Job{}, fmt.Errorf("get job %s: %w", id, queue.ErrNotFound)
	}
	return job, err
}

func (a *api) change(r *http.Request, caller *Caller, op func(context.Context, queue.DB, uuid.UUID) (queue.Job, error)) (queue.Job, error) {
	id, err := jobID(r)
	if err != nil {
		return queue.Job{}, err
	}
	if len(caller.Queues)+len(caller.Kinds) > 0 { // a job never changes its queue or kind
		if _, err := a.find(r, caller); err != nil {
			return queue.Job{}, err
		}
	}
	return op(r.Context(), a.client.db, id)
}

func jobID(r *http.Request) (uuid.UUID, error) {
	text := chi.URLParam(r, "id")
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 { // Parse also takes braces and urn:uuid:
		return uuid.Nil, wrong("id", "want a UUID of 36 characters")
	}
	return id, nil
}

// respondJob writes a job. Package json would compact the payload and escape it, so it is put in between.
func respondJob(w http.ResponseWriter, job queue.Job) error {
	head, err := json.Marshal(struct {
		ID       uuid.UUID   `json:"id"`
		Queue    string      `json:"queue"`
		Kind     string      `json:"kind"`
		State    queue.State `json:"state"`
		Attempts int         `json:"attempts"`
		Failures int         `json:"failures"`
	}{job.ID, job.Queue, job.Kind, job.State, job.Attempts, job.Failures})
	if err != nil {
		return err
	}
	tail, err := json.Marshal(struct {
		RunAt      time.Time  `json:"run_at"`
		CreatedAt  time.Time  `json:"created_at"`
		FinishedAt *time.Time `json:"finished_at"`
		LastError  *string    `json:"last_error"`
	}{job.RunAt.UTC(), job.CreatedAt.UTC(), optional(job.FinishedAt.UTC()), optional(job.LastError)})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	body.Write(head[:len(head)-1])
	body.WriteString(`,"payload":`)
	body.Write(job.Payload)
	body.WriteByte(',')
	body.Write(tail[1:])
	body.WriteByte('\n')
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body.Bytes())
	return nil
}

// optional is nil for the zero value.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func respond(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
