// Package env reads the settings. It is the only reader of the environment; everything
// else is given structs. Each field's setting is DOZE_ and its name in capitals; docs/settings.md is
// made from these structs.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Secret is a setting that is never printed.
type Secret string

// String hides the value.
func (Secret) String() string { return "[hidden]" }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// Database is where the tables are.
type Database struct {
	DatabaseURL    Secret        `split_words:"true" required:"true" desc:"Connection string of Postgres, a pooler in transaction mode included."`
	Schema         string        `default:"doze" desc:"Schema of Doze's tables."`
	MaxConns       int           `split_words:"true" default:"4" desc:"Most connections that one process opens."`
	ConnectTimeout time.Duration `split_words:"true" default:"15s" desc:"Longest time for one attempt to connect. 30s for Aurora at 0 ACU."`
	Reconnect      time.Duration `default:"30s" desc:"How long to keep trying to reach a database that is asleep or starting."`
	Connections    string        `default:"keep" desc:"keep or close: whether connections stay open between invocations. close where an open connection keeps the database awake (Aurora)."`
	ExecMode       string        `split_words:"true" default:"cache_describe" desc:"pgx's query mode: cache_describe (works behind every pooler), cache_statement, describe_exec, exec, simple_protocol."`
}

// Trigger is how a drain is started.
type Trigger struct {
	Trigger         string        `default:"none" desc:"lambda, http, notify or none: how a drain is started. notify tells resident handlers, see DOZE_LISTEN_URL; none leaves it to the sweep or to you."`
	TriggerFunction string        `split_words:"true" desc:"Name or ARN of the handler function, for lambda."`
	TriggerURL      string        `split_words:"true" desc:"URL of POST /drain, for http."`
	TriggerSecrets  Secret        `split_words:"true" desc:"Secrets that sign calls to /drain and /sweep, separated by commas; the first signs, all are accepted."`
	TriggerTimeout  time.Duration `split_words:"true" default:"3s" desc:"Longest time to hand a wake over."`
	Bell            time.Duration `default:"15s" desc:"How long a ring waits for its drain to come before the next enqueue rings again."`
}

// Alarm is how a queue is woken for what is due later.
type Alarm struct {
	Alarm       string `default:"none" desc:"scheduler, notify or none: who wakes a queue for its next due time. scheduler is EventBridge Scheduler; notify leaves it to resident handlers, none to the sweep."`
	AlarmTarget string `split_words:"true" desc:"ARN of the handler function, for scheduler."`
	AlarmRole   string `split_words:"true" desc:"ARN of the role with which EventBridge Scheduler invokes it."`
	AlarmGroup  string `split_words:"true" default:"default" desc:"Group of the schedules."`
	AlarmPrefix string `split_words:"true" default:"doze" desc:"What the schedules' names begin with."`
}

// Receiver is who may start a drain or a sweep over HTTP.
type Receiver struct {
	ReceiverTokens  Secret `split_words:"true" desc:"Bearer tokens for schedulers that cannot sign, separated by commas."`
	ReceiverTrusted bool   `split_words:"true" desc:"true lets every call through: only where the platform checks callers."`
}

// Server is the plain HTTP server outside Lambda.
type Server struct {
	Addr string `desc:"Address to listen on outside Lambda. Default: port $PORT, or 8080, on all interfaces."`
}

// Log is what is logged.
type Log struct {
	LogLevel string `split_words:"true" default:"info" desc:"debug, info, warn or error. Logs are JSON on standard error."`
}

// Enqueue are the settings of the enqueue function.
type Enqueue struct {
	Database
	Trigger
	Alarm
	Server
	Log
	AuthKeys     Secret `split_words:"true" desc:"API keys as name:sha256[:queues=a|b][:kinds=c|d], separated by commas."`
	HMACSecrets  Secret `envconfig:"HMAC_SECRETS" desc:"Secrets with which requests may be signed instead, separated by commas."`
	AuthPlatform bool   `split_words:"true" desc:"true: the platform in front (IAM) checks callers, and Doze lets them through."`
	MaxPayload   int    `split_words:"true" default:"1048576" desc:"Most bytes of a payload."`
	GitHubSecret Secret `envconfig:"GITHUB_SECRET" desc:"Serves POST /v1/hooks/github for webhooks signed with this secret. Empty: off."`
}

// Handler are the settings of the handler function.
type Handler struct {
	Database
	Trigger
	Alarm
	Receiver
	Server
	Log
	Concurrency int           `default:"10" desc:"Handlers that run at once in one drain."`
	BatchSize   int           `split_words:"true" default:"1000" desc:"Most jobs claimed at once."`
	Lease       time.Duration `desc:"How long jobs are held before they are renewed. Default: until the function's deadline, not renewed."`
	Wait        time.Duration `default:"0s" desc:"How near the next due time must be for a drain to wait for it rather than leave it to the alarm. For alarms that are precise to a minute."`
	Timeout     time.Duration `desc:"Longest time of an attempt whose kind has no limit. Default: the deadline."`
	DrainLimit  time.Duration `split_words:"true" default:"270s" desc:"Longest drain outside Lambda. Below the platform's limit for a request."`
	ListenURL   Secret        `split_words:"true" desc:"Connection string of a direct connection, not through a pooler. Set: no HTTP server, but a resident process that listens on it, which keeps the database awake. DOZE_TRIGGER and DOZE_ALARM are then its own, and DOZE_LEASE is 1m by default."`
	Fallback    time.Duration `default:"5m" desc:"How often a resident process looks for due work that nobody told it of."`
	Once        bool          `desc:"true: no HTTP server, but drain each queue with due work once, for DOZE_DRAIN_LIMIT at most, and exit, with 1 after an error: for cron and other timers."`
}

// Sweeper are the settings of the sweeper function.
type Sweeper struct {
	Database
	Trigger
	Alarm
	Receiver
	Server
	Log
	Keep       time.Duration `default:"24h" desc:"How long done and cancelled jobs are kept, in whole days, at most 144h."`
	KeepFailed time.Duration `split_words:"true" default:"720h" desc:"How long failed jobs are kept."`
}

// Migrate are the settings of the migrate function.
type Migrate struct {
	Database
	Log
	GrantRoles bool `split_words:"true" default:"true" desc:"true makes the roles with least privilege and grants them their rights."`
}

// Read fills one of the structs above from the environment. It returns an error that names the setting
// and what is allowed, and never the value of a secret.
func Read(settings any) error {
	err := envconfig.Process("doze", settings)
	var wrong *envconfig.ParseError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s %q: want %s", wrong.KeyName, wrong.Value, wanted(wrong.TypeName))
	case err != nil:
		return fmt.Errorf("%s; set it in the environment", strings.TrimPrefix(err.Error(), "envconfig: "))
	}
	return check(settings)
}

func wanted(typeName string) string {
	switch typeName {
	case "int":
		return "a whole number"
	case "bool":
		return "true or false"
	case "time.Duration":
		return "a duration such as 500ms, 30s, 15m or 24h"
	}
	return "a " + typeName
}

// check holds the settings that are one of a few words, or in a range.
func check(settings any) error {
	v := reflect.ValueOf(settings).Elem()
	for _, part := range []any{field[Database](v), field[Trigger](v), field[Alarm](v), field[Log](v)} {
		var err error
		switch s := part.(type) {
		case *Database:
			err = s.check()
		case *Trigger:
			err = s.check()
		case *Alarm:
			err = s.check()
		case *Log:
			err = oneOf("DOZE_LOG_LEVEL", s.LogLevel, "debug", "info", "warn", "error")
		}
		if err != nil {
			return err
		}
	}
	if h, ok := settings.(*Handler); ok {
		return h.check()
	}
	return nil
}

// field returns the embedded struct of type T, or nil.
func field[T any](v reflect.Value) any {
	for i := range v.NumField() {
		if part, ok := v.Field(i).Addr().Interface().(*T); ok {
			return part
		}
	}
	return nil
}

func (d *Database) check() error {
	if err := oneOf("DOZE_CONNECTIONS", d.Connections, "keep", "close"); err != nil {
		return err
	}
	if err := oneOf("DOZE_EXEC_MODE", d.ExecMode, "cache_describe", "cache_statement", "describe_exec", "exec", "simple_protocol"); err != nil {
		return err
	}
	if d.MaxConns < 1 || d.MaxConns > 1000 {
		return fmt.Errorf("DOZE_MAX_CONNS %d: want 1 to 1000", d.MaxConns)
	}
	return nil
}

func (t *Trigger) check() error {
	if err := oneOf("DOZE_TRIGGER", t.Trigger, "lambda", "http", "notify", "none"); err != nil {
		return err
	}
	switch {
	case t.Trigger == "lambda" && t.TriggerFunction == "":
		return errors.New("DOZE_TRIGGER_FUNCTION: want the handler function's name or ARN, since DOZE_TRIGGER is lambda")
	case t.Trigger == "http" && t.TriggerURL == "":
		return errors.New("DOZE_TRIGGER_URL: want the URL of POST /drain, since DOZE_TRIGGER is http")
	case t.Trigger == "http" && t.TriggerSecrets == "":
		return errors.New("DOZE_TRIGGER_SECRETS: want a secret to sign with, since DOZE_TRIGGER is http")
	}
	return nil
}

func (a *Alarm) check() error {
	if err := oneOf("DOZE_ALARM", a.Alarm, "scheduler", "notify", "none"); err != nil {
		return err
	}
	switch {
	case a.Alarm == "scheduler" && a.AlarmTarget == "":
		return errors.New("DOZE_ALARM_TARGET: want the handler function's ARN, since DOZE_ALARM is scheduler")
	case a.Alarm == "scheduler" && a.AlarmRole == "":
		return errors.New("DOZE_ALARM_ROLE: want the ARN of a role that may invoke the handler, since DOZE_ALARM is scheduler")
	}
	return nil
}

func (h *Handler) check() error {
	switch {
	case h.ListenURL != "" && h.Once:
		return errors.New("DOZE_ONCE: set together with DOZE_LISTEN_URL; want one of them")
	case (h.ListenURL != "" || h.Once) && OnLambda():
		return errors.New("DOZE_LISTEN_URL, DOZE_ONCE: not on Lambda, where a process is frozen between calls; invoke the function from a schedule instead")
	case h.Fallback <= 0:
		return fmt.Errorf("DOZE_FALLBACK %v: want a positive duration such as 5m", h.Fallback)
	}
	return nil
}

func oneOf(name, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s %q: want %s", name, value, strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1])
}

// List splits a setting of several values. Empty ones are left out.
func (s Secret) List() []string {
	var all []string
	for part := range strings.SplitSeq(string(s), ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// Bytes is List as byte slices.
func (s Secret) Bytes() [][]byte {
	var all [][]byte
	for _, part := range s.List() {
		all = append(all, []byte(part))
	}
	return all
}

// OnLambda reports whether this process is a Lambda function.
func OnLambda() bool { return os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" }

// Listen is the address for the plain HTTP server: platforms name the port in PORT.
func (s Server) Listen() string {
	if s.Addr != "" {
		return s.Addr
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	return ":" + port
}

// Logger logs JSON to standard error, where each platform collects it.
func (l Log) Logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // checked by Read
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// Setting is one line of the settings' table.
type Setting struct{ Name, Default, Desc string }

// Settings lists the settings of a struct, for the docs and for messages.
func Settings(settings any) []Setting {
	return list(reflect.TypeOf(settings).Elem())
}

func list(t reflect.Type) []Setting {
	var all []Setting
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			all = append(all, list(f.Type)...)
			continue
		}
		name := f.Tag.Get("envconfig")
		if name == "" {
			name = f.Name
			if f.Tag.Get("split_words") == "true" {
				name = words(name)
			}
		}
		all = append(all, Setting{Name: "DOZE_" + strings.ToUpper(name), Default: f.Tag.Get("default"), Desc: f.Tag.Get("desc")})
	}
	return all
}

// words puts _ between the words of a Go name, as envconfig does.
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z' || i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z') {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return b.String()
}
