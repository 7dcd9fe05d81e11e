package lambdatest

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// inEnvironment finds the environment that calls.
func (s *Server) inEnvironment(h func(http.ResponseWriter, *http.Request, *environment)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		e := s.envs[r.PathValue("environment")]
		s.mu.Unlock()
		if e == nil {
			refuse(w, http.StatusForbidden, "InvalidEnvironment", "no such environment")
			return
		}
		h(w, r, e)
	}
}

// getNext ends the invocation before, stops the process until there is another,
// and gives that.
func (s *Server) getNext(w http.ResponseWriter, r *http.Request, e *environment) {
	s.mu.Lock()
	if e.dead {
		s.mu.Unlock()
		return
	}
	switch {
	case !e.ready: // started; the invocation it was started for waits
		e.ready = true
		if e.inv != nil {
			s.begin(e)
		}
	default:
		s.free(e)
	}
	if e.inv == nil {
		e.freeze()
	}
	s.mu.Unlock()

	select {
	case inv := <-e.next:
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", Region, Account, e.f.Name))
		h.Set("Lambda-Runtime-Trace-Id", inv.trace())
		_, _ = w.Write(inv.payload)
	case <-e.ctx.Done():
	case <-r.Context().Done():
	}
}

func (s *Server) postResponse(w http.ResponseWriter, r *http.Request, e *environment) {
	s.answer(w, r, e, func(body []byte) result {
		if len(body) > maxSync {
			return result{err: &errFunction{kind: "Unhandled", payload: failure("Function.ResponseSizeTooLarge",
				fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", maxSync))}}
		}
		return result{payload: body}
	})
}

func (s *Server) postError(w http.ResponseWriter, r *http.Request, e *environment) {
	s.answer(w, r, e, func(body []byte) result {
		return result{err: &errFunction{kind: "Unhandled", payload: body}}
	})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, e *environment, read func([]byte) result) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSync+1))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.dead || e.inv == nil || e.inv.id != r.PathValue("id") {
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "no such invocation in this environment")
		return
	}
	if e.inv.answer == nil {
		r := read(body)
		e.inv.answer = &r
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) postInitError(w http.ResponseWriter, r *http.Request, e *environment) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSync))
	if err != nil {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(e, &errFunction{kind: "Unhandled", payload: body})
}

// postRegister lets a function ask for SIGTERM; the double never sends one,
// since it cannot be relied on.
func (s *Server) postRegister(w http.ResponseWriter, _ *http.Request, e *environment) {
	w.Header().Set("Lambda-Extension-Identifier", e.id)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func (s *Server) getEvent(_ http.ResponseWriter, r *http.Request, e *environment) {
	select {
	case <-e.ctx.Done():
	case <-r.Context().Done():
	}
}
