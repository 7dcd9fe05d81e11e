package trigger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/receive"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/triggertest"
)

const (
	bearerToken  = "a-token-of-the-tests-of-trigger"
	serviceToken = "token-for-the-service"
)

var alarmOfMail = queue.Wake{Version: 1, Queue: "mail", Reason: queue.ReasonAlarm, Alarm: "0b9c6c1e-6f4e-4c55-9d0e-000000000017"}

// later is a service that sends requests later, by a clock of its own. It speaks as QStash and as
// Cloud Tasks do.
type later struct {
	*httptest.Server
	t       *testing.T
	reached chan struct{} // one for each wake at the drain

	mu      sync.Mutex
	now     time.Time
	ids     map[string]bool
	pending []postponed
	answers []int // to give before serving
	asked   []asked
	hang    chan struct{}
}

type postponed struct {
	at     time.Time
	url    string
	header http.Header
	body   []byte
}

// asked is a request to the service.
type asked struct {
	method, uri string
	header      http.Header
	body        string
}

func newLater(t *testing.T) *later {
	s := &later{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ids: map[string]bool{}, reached: make(chan struct{}, 64)}
	s.Server = serve(t, s)
	return s
}

func (s *later) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *later) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
	if len(s.answers) > 0 {
		status := s.answers[0]
		s.answers = s.answers[1:]
		w.WriteHeader(status)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+serviceToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if target, ok := strings.CutPrefix(r.RequestURI, "/v2/publish/"); ok {
		s.publish(w, r, target, body)
		return
	}
	s.createTask(w, r, body)
}

// publish is POST /v2/publish of QStash.
func (s *later) publish(w http.ResponseWriter, r *http.Request, target string, body []byte) {
	seconds, err := strconv.Atoi(strings.TrimSuffix(r.Header.Get("Upstash-Delay"), "s"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusCreated
	if id := r.Header.Get("Upstash-Deduplication-Id"); s.ids[id] {
		status = http.StatusAccepted
	} else {
		s.ids[id] = true
		header := http.Header{"Content-Type": r.Header["Content-Type"]}
		for name, values := range r.Header {
			if name, ok := strings.CutPrefix(name, "Upstash-Forward-"); ok {
				header[name] = values
			}
		}
		s.pending = append(s.pending, postponed{s.now.Add(time.Duration(seconds) * time.Second), target, header, body})
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"messageId":"msg_1"}`)
}

// createTask is POST /v2/…/tasks of Cloud Tasks.
func (s *later) createTask(w http.ResponseWriter, r *http.Request, body []byte) {
	var in struct {
		Task struct {
			Name         string
			ScheduleTime time.Time
			HTTPRequest  struct {
				URL        string
				HTTPMethod string
				Headers    map[string]string
				Body       []byte
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil || !strings.HasPrefix("/v2/"+in.Task.Name, r.RequestURI+"/") {
		s.t.Errorf("task %s at %s: %v", body, r.RequestURI, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if s.ids[in.Task.Name] {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":{"code":409,"status":"ALREADY_EXISTS"}}`)
		return
	}
	s.ids[in.Task.Name] = true
	header := http.Header{}
	for name, value := range in.Task.HTTPRequest.Headers {
		header.Set(name, value)
	}
	s.pending = append(s.pending, postponed{in.Task.ScheduleTime, in.Task.HTTPRequest.URL, header, in.Task.HTTPRequest.Body})
	_, _ = io.WriteString(w, `{}`)
}

// advance sends what comes due and returns when the drain has all of it.
func (s *later) advance(d time.Duration) {
	s.mu.Lock()
	s.now = s.now.Add(d)
	var due []postponed
	s.pending = slices.DeleteFunc(s.pending, func(p postponed) bool {
		if p.at.After(s.now) {
			return false
		}
		due = append(due, p)
		return true
	})
	s.mu.Unlock()
	for _, p := range due {
		go func() {
			req, err := http.NewRequest(http.MethodPost, p.url, bytes.NewReader(p.body))
			if err != nil {
				s.t.Errorf("deliver: %v", err)
				s.reached <- struct{}{}
				return
			}
			req.Header = p.header
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return // the test has ended
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				s.t.Errorf("the drain answered %d", resp.StatusCode)
				s.reached <- struct{}{}
			}
		}()
	}
	for range due {
		<-s.reached
	}
}

// fixture has a drain behind the receiver of the real one, which takes the bearer token.
func (s *later) fixture(configure func(url string) (HTTPAlarmConfig, error)) triggertest.AlarmFixture {
	d := newDrain(s.t)
	h, err := receive.Handler(receive.Auth{Bearers: []string{bearerToken}}, nil, time.Minute, func(ctx context.Context, body []byte) (any, error) {
		var w queue.Wake
		if err := json.Unmarshal(body, &w); err != nil {
			return nil, err
		}
		d.mu.Lock()
		gate := d.gate
		d.mu.Unlock()
		d.deliveries <- triggertest.Delivery{Wake: w, Body: body}
		s.reached <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return nil, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	config, err := configure(serve(s.t, h).URL + "/drain")
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := NewHTTPAlarm(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return triggertest.AlarmFixture{
		Alarm:      a,
		Advance:    s.advance,
		Deliveries: d.deliveries,
		Grain:      time.Second,
		Block:      d.block,
		Hang: func() func() {
			hang := make(chan struct{})
			s.mu.Lock()
			s.hang = hang
			s.mu.Unlock()
			return func() { close(hang) }
		},
		Break: s.Close,
	}
}

// authorized adds the credentials of the service, as a client of Google's does.
type authorized struct{ http.RoundTripper }

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+serviceToken)
	return a.RoundTripper.RoundTrip(r)
}

func (s *later) qstash(url string) (HTTPAlarmConfig, error) {
	return QStash(QStashConfig{URL: url, Token: serviceToken, Bearer: bearerToken, Endpoint: s.URL})
}

func (s *later) cloudTasks(url string) (HTTPAlarmConfig, error) {
	return CloudTasks(CloudTasksConfig{
		Queue: "projects/p/locations/europe-west3/queues/alarms", URL: url, Bearer: bearerToken, Endpoint: s.URL,
		Client: &http.Client{Transport: authorized{http.DefaultTransport}}, Now: s.Now,
	})
}

func TestHTTPAlarm_KeepsTheContract(t *testing.T) {
	for name, configure := range map[string]func(*later, string) (HTTPAlarmConfig, error){
		"QStash": (*later).qstash, "Cloud Tasks": (*later).cloudTasks,
	} {
		t.Run(name, func(t *testing.T) {
			triggertest.RunAlarm(t, func(t *testing.T, test func(*testing.T, triggertest.AlarmFixture)) {
				s := newLater(t)
				test(t, s.fixture(func(url string) (HTTPAlarmConfig, error) { return configure(s, url) }))
			})
		})
	}
}

// set sets one alarm with config and gives what the service was asked.
func (s *later) set(config HTTPAlarmConfig, err error, in time.Duration) ([]asked, error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := NewHTTPAlarm(config)
	if err != nil {
		s.t.Fatal(err)
	}
	err = a.Set(s.t.Context(), alarmOfMail, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, err
}

func TestQStash_Request(t *testing.T) {
	s := newLater(t)
	config, err := s.qstash("https://drain.example.org/v1/drain")
	requests, err := s.set(config, err, 90*time.Second+time.Millisecond)
	if err != nil || len(requests) != 1 {
		t.Fatalf("%d requests, %v", len(requests), err)
	}
	got := requests[0]
	if got.method != "POST" || got.uri != "/v2/publish/https://drain.example.org/v1/drain" {
		t.Errorf("%s %s", got.method, got.uri)
	}
	if want := `{"v":1,"queue":"mail","reason":"alarm","alarm":"0b9c6c1e-6f4e-4c55-9d0e-000000000017"}`; got.body != want {
		t.Errorf("body %s, want %s", got.body, want)
	}
	for name, want := range map[string]string{
		"Authorization":                 "Bearer " + serviceToken,
		"Content-Type":                  "application/json",
		"Upstash-Method":                "POST",
		"Upstash-Delay":                 "91s",
		"Upstash-Deduplication-Id":      alarmOfMail.Alarm,
		"Upstash-Retries":               "2",
		"Upstash-Forward-Authorization": "Bearer " + bearerToken,
		"Upstash-Redact-Fields":         "header[Authorization]",
	} {
		if g := got.header.Get(name); g != want {
			t.Errorf("%s: %q, want %q", name, g, want)
		}
	}
}

func TestCloudTasks_Request(t *testing.T) {
	const queueName = "projects/p/locations/europe-west3/queues/alarms"
	const body = `"eyJ2IjoxLCJxdWV1ZSI6Im1haWwiLCJyZWFzb24iOiJhbGFybSIsImFsYXJtIjoiMGI5YzZjMWUtNmY0ZS00YzU1LTlkMGUtMDAwMDAwMDAwMDE3In0="`
	for name, c := range map[string]struct {
		change func(*CloudTasksConfig)
		rest   string
	}{
		"bearer": {func(*CloudTasksConfig) {},
			`"headers":{"Authorization":"Bearer ` + bearerToken + `","Content-Type":"application/json"},"body":` + body},
		"service account": {func(c *CloudTasksConfig) { c.Bearer, c.ServiceAccount = "", "drain@p.iam.gserviceaccount.com" },
			`"headers":{"Content-Type":"application/json"},"body":` + body +
				`,"oidcToken":{"serviceAccountEmail":"drain@p.iam.gserviceaccount.com","audience":"https://drain.example.org/drain"}`},
		"service account for an audience": {func(c *CloudTasksConfig) {
			c.Bearer, c.ServiceAccount, c.Audience = "", "drain@p.iam.gserviceaccount.com", "drain"
		},
			`"headers":{"Content-Type":"application/json"},"body":` + body +
				`,"oidcToken":{"serviceAccountEmail":"drain@p.iam.gserviceaccount.com","audience":"drain"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLater(t)
			conf := CloudTasksConfig{
				Queue: queueName, URL: "https://drain.example.org/drain", Bearer: bearerToken, Endpoint: s.URL + "/",
				Client: &http.Client{Transport: authorized{http.DefaultTransport}}, Now: s.Now,
			}
			c.change(&conf)
			config, err := CloudTasks(conf)
			requests, err := s.set(config, err, 90*time.Second+time.Millisecond)
			if err != nil || len(requests) != 1 {
				t.Fatalf("%d requests, %v", len(requests), err)
			}
			got := requests[0]
			if got.method != "POST" || got.uri != "/v2/"+queueName+"/tasks" || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s, %s", got.method, got.uri, got.header.Get("Content-Type"))
			}
			want := `{"task":{"name":"` + queueName + `/tasks/` + alarmOfMail.Alarm + `","scheduleTime":"2026-03-01T12:01:31Z","dispatchDeadline":"1800s",` +
				`"httpRequest":{"url":"https://drain.example.org/drain","httpMethod":"POST",` + c.rest + `}}}`
			if got.body != want {
				t.Errorf("body\n%s, want\n%s", got.body, want)
			}
		})
	}
}

func TestHTTPAlarm_ClampsTheTime(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		in, grain, horizon, want time.Duration
	}{
		{-time.Hour, 0, 0, time.Second},
		{0, 0, 0, time.Second},
		{time.Millisecond, 0, 0, time.Second},
		{1001 * time.Millisecond, 0, 0, 2 * time.Second},
		{400 * day, 0, 0, 400 * day},
		{400 * day, 0, 7 * day, 7 * day},
		{61 * time.Second, time.Minute, 0, 2 * time.Minute},
		{10 * time.Minute, time.Minute, 90 * time.Second, time.Minute},
	} {
		if got := (HTTPAlarmConfig{Grain: c.grain, Horizon: c.horizon}).withDefaults().wait(c.in); got != c.want {
			t.Errorf("in %s with a grain of %s and a horizon of %s: %s, want %s", c.in, c.grain, c.horizon, got, c.want)
		}
	}
}

func TestHTTPAlarm_TriesAgainAndGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		tries   int
		want    string // of the error
	}{
		"busy once":        {[]int{503}, 2, ""},
		"throttled twice":  {[]int{429, 429}, 3, ""},
		"failing for long": {[]int{500, 502, 503, 500}, 3, "answer 503"},
		"refused":          {[]int{401, 401}, 1, "check the token for the service"},
		"not found":        {[]int{404}, 1, "its queue exists"},
		"bad":              {[]int{400}, 1, "did not take"},
		"redirected":       {[]int{307}, 1, "answer 307"},
		"there already":    {[]int{409}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLater(t)
			s.answers = c.answers
			config, err := s.cloudTasks("https://drain.example.org/secret-path")
			requests, err := s.set(config, err, time.Minute)
			if len(requests) != c.tries {
				t.Errorf("%d tries, want %d", len(requests), c.tries)
			}
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"mail"`) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestHTTPAlarm_RefusesWhatItCannotAsk(t *testing.T) {
	a, err := NewHTTPAlarm(HTTPAlarmConfig{Request: func(context.Context, queue.Wake, time.Duration) (*http.Request, error) {
		return nil, errors.New("no way")
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Set(t.Context(), alarmOfMail, time.Minute); err == nil || !strings.Contains(err.Error(), "no way") {
		t.Errorf("got %v, want the error of Request", err)
	}
	if err := a.Set(t.Context(), mail, time.Minute); err == nil || !strings.Contains(err.Error(), "alarm: empty") {
		t.Errorf("got %v, want that the id is missing", err)
	}
}

func TestHTTPAlarm_KeepsSecretsOutOfErrors(t *testing.T) {
	s := newLater(t)
	s.Close()
	config, err := s.qstash("https://drain.example.org/secret-path")
	_, err = s.set(config, err, time.Minute)
	if err == nil {
		t.Fatal("no error, and the service is gone")
	}
	for _, secret := range []string{serviceToken, bearerToken, "secret-path"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q is in the error: %v", secret, err)
		}
	}
}

func TestTaskName_FitsAndTellsApart(t *testing.T) {
	names := map[string]string{}
	for _, id := range []string{"a", "A_b-9", "a b", "a/b", strings.Repeat("x", 500), strings.Repeat("x", 501), strings.Repeat("x", 502)} {
		name := taskName(id)
		if !taskID.MatchString(name) {
			t.Errorf("%q: %q cannot name a task", id, name)
		}
		if other, ok := names[name]; ok {
			t.Errorf("%q and %q have the same name", id, other)
		}
		names[name] = id
	}
}

func TestAlarmConfigs_NameWhatIsWrong(t *testing.T) {
	goodQ := QStashConfig{URL: "https://drain.example.org/drain", Token: serviceToken, Bearer: bearerToken}
	goodC := CloudTasksConfig{
		Queue: "projects/p/locations/l/queues/q", URL: goodQ.URL, Bearer: bearerToken, Client: http.DefaultClient,
	}
	q := func(change func(*QStashConfig)) error { c := goodQ; change(&c); _, err := QStash(c); return err }
	c := func(change func(*CloudTasksConfig)) error {
		c := goodC
		change(&c)
		_, err := CloudTasks(c)
		return err
	}
	h := func(c HTTPAlarmConfig) error { _, err := NewHTTPAlarm(c); return err }
	request := func(context.Context, queue.Wake, time.Duration) (*http.Request, error) { return nil, nil }
	if err := cmp.Or(q(func(*QStashConfig) {}), c(func(*CloudTasksConfig) {}), h(HTTPAlarmConfig{Request: request})); err != nil {
		t.Fatalf("good ones: %v", err)
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{q(func(c *QStashConfig) { c.URL = "" }), "URL: want the drain's"},
		{q(func(c *QStashConfig) { c.URL = "http://drain.example.org/drain" }), "want https"},
		{q(func(c *QStashConfig) { c.URL += "?secret=1" }), "has a query"},
		{q(func(c *QStashConfig) { c.URL = "https://secret:secret@drain.example.org" }), "holds a user"},
		{q(func(c *QStashConfig) { c.Token = "" }), "Token:"},
		{q(func(c *QStashConfig) { c.Token = "secret\nsecret" }), "Token:"},
		{q(func(c *QStashConfig) { c.Bearer = "secret" }), "at least 16 bytes"},
		{q(func(c *QStashConfig) { c.Bearer = "" }), "Bearer:"},
		{q(func(c *QStashConfig) { c.Endpoint = "http://qstash.example.org" }), "Endpoint:"},
		{q(func(c *QStashConfig) { c.Endpoint = "https://secret@qstash.example.org" }), "Endpoint:"},
		{q(func(c *QStashConfig) { c.Horizon = -1 }), "Horizon:"},
		{c(func(c *CloudTasksConfig) { c.URL = "ftp://drain.example.org" }), "want https"},
		{c(func(c *CloudTasksConfig) { c.Queue = "alarms" }), "Queue:"},
		{c(func(c *CloudTasksConfig) { c.Client = nil }), "Client:"},
		{c(func(c *CloudTasksConfig) { c.Bearer = "" }), "Bearer:"},
		{c(func(c *CloudTasksConfig) { c.ServiceAccount = "drain@p" }), "one of the two"},
		{c(func(c *CloudTasksConfig) { c.Bearer, c.ServiceAccount = "", "drain" }), "an email address"},
		{c(func(c *CloudTasksConfig) { c.Endpoint = "cloudtasks" }), "Endpoint:"},
		{h(HTTPAlarmConfig{}), "Request: nil"},
		{h(HTTPAlarmConfig{Request: request, Grain: -1}), "Grain:"},
		{h(HTTPAlarmConfig{Request: request, Timeout: -1}), "Timeout:"},
		{h(HTTPAlarmConfig{Request: request, Horizon: time.Millisecond}), "Horizon:"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("got %v, want %q", test.err, test.want)
		} else if strings.Contains(test.err.Error(), "secret") {
			t.Errorf("a secret is in the error: %v", test.err)
		}
	}
}
