package schedulertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /schedules/{name}", s.put(s.create))
	mux.HandleFunc("PUT /schedules/{name}", s.put(s.update))
	mux.HandleFunc("GET /schedules/{name}", s.get)
	mux.HandleFunc("DELETE /schedules/{name}", s.delete)
	return s.unruly(mux)
}

// unruly counts the requests and does the faults that befall them.
func (s *Server) unruly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		hold := s.hold
		s.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		s.mu.Lock()
		s.counters.Requests++
		n := s.counters.Requests
		status, vanish := 0, false
		if s.faults.Reject != nil {
			status = s.faults.Reject(n)
		}
		if status != 0 {
			s.counters.Rejected++
		} else if s.faults.Vanish != nil {
			vanish = s.faults.Vanish(n)
		}
		s.change()
		s.mu.Unlock()
		switch {
		case status != 0:
			refuse(w, &refusal{status, refusalName(status), "refused by the test"})
		case vanish:
			next.ServeHTTP(nowhere{http.Header{}}, r)
			panic(http.ErrAbortHandler) // cuts the connection
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// nowhere is a response that is not sent.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

// refusal is an error of the API.
type refusal struct {
	status        int
	kind, message string
}

func (s *Server) put(do func(Schedule) *refusal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var d Schedule
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &d)
		}
		d.Name = r.PathValue("name")
		if err == nil {
			err = d.check()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.change()
		if err != nil {
			s.counters.Invalid++
			refuse(w, &refusal{http.StatusBadRequest, "ValidationException", err.Error()})
			return
		}
		if no := do(d); no != nil {
			refuse(w, no)
			return
		}
		answer(w, map[string]any{"ScheduleArn": arn(d.GroupName, d.Name)})
	}
}

// create needs mu, as update does.
func (s *Server) create(d Schedule) *refusal {
	e := s.schedules[d.GroupName+"/"+d.Name]
	switch {
	case !s.groups[d.GroupName]:
		s.counters.NotFound++
		return &refusal{http.StatusNotFound, "ResourceNotFoundException", "Schedule group " + d.GroupName + " does not exist."}
	case e != nil && d.ClientToken != "" && e.ClientToken == d.ClientToken && e.ScheduleExpression == d.ScheduleExpression:
		s.counters.Repeated++
		return nil
	case e != nil:
		s.counters.Conflicts++
		return &refusal{http.StatusConflict, "ConflictException", "Schedule " + d.Name + " already exists."}
	}
	e = &entry{}
	if no := s.set(e, d); no != nil {
		return no
	}
	s.counters.Created++
	s.schedules[e.key()] = e
	return nil
}

func (s *Server) update(d Schedule) *refusal {
	e := s.schedules[d.GroupName+"/"+d.Name]
	if e == nil {
		return s.missing(d.GroupName, d.Name)
	}
	if no := s.set(e, d); no != nil {
		return no
	}
	s.counters.Updated++
	return nil
}

// set replaces everything but a deletion that was decided.
func (s *Server) set(e *entry, d Schedule) *refusal {
	now := s.time()
	if !d.At.After(now) {
		s.counters.Invalid++
		return &refusal{http.StatusBadRequest, "ValidationException", fmt.Sprintf("%s: the time is past, as it is %s", d.ScheduleExpression, now.UTC().Format(time.RFC3339))}
	}
	s.puts++
	e.Schedule, e.number, e.attempt = d, s.puts, 0
	wait := d.At.Sub(now)
	if s.faults.Delay != nil {
		wait += s.faults.Delay(e.number)
	}
	if s.faults.Early != nil {
		wait -= s.faults.Early(e.number)
	}
	e.fireAt = time.Time{}
	if d.State == "ENABLED" {
		e.fireAt = s.in(max(wait, 0))
	}
	return nil
}

func (s *Server) missing(group, name string) *refusal {
	s.counters.NotFound++
	return &refusal{http.StatusNotFound, "ResourceNotFoundException", "Schedule " + name + " does not exist in group " + group + "."}
}

// find names the schedule of a GET or DELETE.
func (s *Server) find(r *http.Request) (*entry, *refusal) {
	group, name := r.URL.Query().Get("groupName"), r.PathValue("name")
	if group == "" {
		group = "default"
	}
	if e := s.schedules[group+"/"+name]; e != nil {
		return e, nil
	}
	return nil, s.missing(group, name)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, no := s.find(r)
	if no != nil {
		refuse(w, no)
		return
	}
	shown := e.Schedule
	shown.ClientToken = ""
	answer(w, struct {
		Schedule
		Arn string
	}{shown, arn(e.GroupName, e.Name)})
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change()
	e, no := s.find(r)
	if no != nil {
		refuse(w, no)
		return
	}
	s.counters.Deleted++
	delete(s.schedules, e.key())
	answer(w, struct{}{})
}

func arn(group, name string) string {
	return "arn:aws:scheduler:" + Region + ":" + Account + ":schedule/" + group + "/" + name
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refusalName(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "ThrottlingException"
	case http.StatusForbidden:
		return "AccessDeniedException"
	case http.StatusConflict:
		return "ConflictException"
	case http.StatusNotFound:
		return "ResourceNotFoundException"
	case http.StatusBadRequest:
		return "ValidationException"
	}
	return "InternalServerException"
}

func refuse(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", r.kind)
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Message": r.message})
}
