package lambdatest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// The largest payloads that Lambda takes:
// https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html.
const (
	maxSync  = 6 << 20
	maxAsync = 1 << 20
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", s.postInvoke)
	const runtime = "/environment/{environment}/2018-06-01/runtime"
	mux.HandleFunc("GET "+runtime+"/invocation/next", s.inEnvironment(s.getNext))
	mux.HandleFunc("POST "+runtime+"/invocation/{id}/response", s.inEnvironment(s.postResponse))
	mux.HandleFunc("POST "+runtime+"/invocation/{id}/error", s.inEnvironment(s.postError))
	mux.HandleFunc("POST "+runtime+"/init/error", s.inEnvironment(s.postInitError))
	const extension = "/environment/{environment}/2020-01-01/extension"
	mux.HandleFunc("POST "+extension+"/register", s.inEnvironment(s.postRegister))
	mux.HandleFunc("GET "+extension+"/event/next", s.inEnvironment(s.getEvent))
	return mux
}

// postInvoke is the API that SDKs call.
func (s *Server) postInvoke(w http.ResponseWriter, r *http.Request) {
	kind := r.Header.Get("X-Amz-Invocation-Type")
	limit := int64(maxSync)
	if kind == "Event" {
		limit = maxAsync
	}
	payload, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return
	}
	name, trace := bareName(r.PathValue("name")), r.Header.Get("X-Amzn-Trace-Id")
	switch {
	case int64(len(payload)) > limit:
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request must be smaller than "+strconv.FormatInt(limit, 10)+" bytes")
		return
	case len(payload) > 0 && !json.Valid(payload):
		refuse(w, http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json")
		return
	case len(payload) == 0:
		payload = []byte("{}")
	}
	w.Header().Set("X-Amzn-Requestid", newID())
	switch kind {
	case "Event":
		status, err := s.accept(name, payload, trace)
		if status != 0 {
			refuse(w, status, refusalName(status), "refused by the test")
			return
		}
		if err != nil {
			refuseError(w, err)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	case "DryRun":
		w.WriteHeader(http.StatusNoContent)
	case "", "RequestResponse":
		out, err := s.invoke(r.Context(), name, payload, trace)
		var failed *errFunction
		if errors.As(err, &failed) {
			w.Header().Set("X-Amz-Function-Error", failed.kind)
		} else if err != nil {
			refuseError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amz-Executed-Version", "$LATEST")
		_, _ = w.Write(out)
	default:
		refuse(w, http.StatusBadRequest, "InvalidParameterValueException", "X-Amz-Invocation-Type: want Event, RequestResponse or DryRun")
	}
}

// bareName reduces arn:aws:lambda:…:function:name:alias and name:alias.
func bareName(s string) string {
	if _, rest, ok := strings.Cut(s, ":function:"); ok {
		s = rest
	}
	name, _, _ := strings.Cut(s, ":")
	return name
}

func refusalName(status int) string {
	if status == http.StatusTooManyRequests {
		return "TooManyRequestsException"
	}
	return "ServiceException"
}

func refuseError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNoFunction):
		refuse(w, http.StatusNotFound, "ResourceNotFoundException", "Function not found")
	case errors.Is(err, errThrottled):
		refuse(w, http.StatusTooManyRequests, "TooManyRequestsException", "Rate Exceeded.")
	case errors.Is(err, errLooped):
		refuse(w, http.StatusBadRequest, "RecursiveInvocationException", "Recursive invocation detected")
	default:
		refuse(w, http.StatusInternalServerError, "ServiceException", err.Error())
	}
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Type": "User", "Message": message})
}
