//go:build unix

package lambdatest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func post(t *testing.T, address, kind, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patient(t), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Invocation-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(out)
}

func TestAPI_AnswersAsLambdaDoes(t *testing.T) {
	s := start(t, Function{Concurrency: 1})
	at := func(name string) string {
		return s.URL() + "/2015-03-31/functions/" + url.PathEscape(name) + "/invocations"
	}
	big := `"` + strings.Repeat("x", maxAsync) + `"`
	for _, c := range []struct {
		name, function, kind, body string
		status                     int
		header, value              string
	}{
		{"async", "fn", "Event", `{}`, 202, "", ""},
		{"sync", "fn", "RequestResponse", `{}`, 200, "X-Amz-Function-Error", ""},
		{"sync by default", "fn", "", `{}`, 200, "", ""},
		{"sync that fails", "fn", "RequestResponse", `{"do":"fail"}`, 200, "X-Amz-Function-Error", "Unhandled"},
		{"by ARN", "arn:aws:lambda:eu-central-1:123456789012:function:fn", "RequestResponse", `{}`, 200, "", ""},
		{"by alias", "fn:live", "RequestResponse", `{}`, 200, "", ""},
		{"dry run", "fn", "DryRun", `{}`, 204, "", ""},
		{"unknown function", "other", "Event", `{}`, 404, "X-Amzn-Errortype", "ResourceNotFoundException"},
		{"not JSON", "fn", "Event", `{`, 400, "X-Amzn-Errortype", "InvalidRequestContentException"},
		{"unknown kind", "fn", "Later", `{}`, 400, "X-Amzn-Errortype", "InvalidParameterValueException"},
		{"over 1 MB async", "fn", "Event", big, 413, "X-Amzn-Errortype", "RequestTooLargeException"},
		{"over 1 MB sync", "fn", "RequestResponse", big, 200, "X-Amz-Function-Error", "Unhandled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, out := post(t, at(c.function), c.kind, c.body)
			if resp.StatusCode != c.status || c.header != "" && resp.Header.Get(c.header) != c.value {
				t.Errorf("got %d, %s %q: %.200s", resp.StatusCode, c.header, resp.Header.Get(c.header), out)
			}
			idle(t, s)
		})
	}
	s.SetFaults("fn", Faults{Reject: func(int) int { return 429 }})
	if resp, _ := post(t, at("fn"), "Event", `{}`); resp.StatusCode != 429 || resp.Header.Get("X-Amzn-Errortype") != "TooManyRequestsException" {
		t.Errorf("rejected with %d %v", resp.StatusCode, resp.Header)
	}
}

func TestFunctionURL_ReachesARealFunction(t *testing.T) {
	s := start(t, Function{})
	base, err := s.FunctionURL("fn")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(base + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r reply
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || r.Name != "fn" {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := s.FunctionURL("other"); err == nil {
		t.Error("no error for an unknown function")
	}
}

func TestAdd_RefusesBadFunctions(t *testing.T) {
	s := start(t, Function{})
	for want, f := range map[string]Function{
		"Name":        {Name: "a b", Bootstrap: bootstrap},
		"either":      {Name: "a"},
		"negative":    {Name: "a", Bootstrap: bootstrap, Timeout: -1},
		"NAME=value":  {Name: "a", Bootstrap: bootstrap, Env: []string{"X"}},
		"added befor": {Name: "fn", Bootstrap: bootstrap},
	} {
		if err := s.Add(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
