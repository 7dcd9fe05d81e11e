package env

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/settings.md")

// table is docs/settings.md, made from the structs so that it cannot go stale.
func table() string {
	var b strings.Builder
	b.WriteString("# Settings\n\nThe functions read these variables. A wrong value stops them at the start, with what is allowed.\n")
	for _, s := range []struct {
		name     string
		settings any
	}{{"enqueue", &Enqueue{}}, {"handler", &Handler{}}, {"sweeper", &Sweeper{}}, {"migrate", &Migrate{}}} {
		fmt.Fprintf(&b, "\n## functions/%s\n\n| setting | default | |\n|---|---|---|\n", s.name)
		for _, line := range Settings(s.settings) {
			value := ""
			if line.Default != "" {
				value = "`" + line.Default + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", line.Name, value, strings.ReplaceAll(line.Desc, "|", "\\|"))
		}
	}
	b.WriteString("\nOutside Lambda the functions listen on `$PORT` where `DOZE_ADDR` is not set.\n")
	return b.String()
}

func TestDocsListEverySetting(t *testing.T) {
	const path = "../../docs/settings.md"
	if *update {
		if err := os.WriteFile(path, []byte(table()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != table() {
		t.Errorf("%s is not what the structs say; run go test ./internal/env -update", path)
	}
}

func TestWrongSettingIsNamedWithWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{map[string]string{}, []string{"DOZE_DATABASE_URL", "set it"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_CONCURRENCY": "many"}, []string{"DOZE_CONCURRENCY", "many", "a whole number"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_DRAIN_LIMIT": "5"}, []string{"DOZE_DRAIN_LIMIT", "a duration such as"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_TRIGGER": "pigeon"}, []string{"DOZE_TRIGGER", "pigeon", "lambda, http, notify or none"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_ALARM": "clock"}, []string{"DOZE_ALARM", "clock", "scheduler, notify or none"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_LISTEN_URL": "postgres://h", "DOZE_ONCE": "true"}, []string{"DOZE_ONCE", "DOZE_LISTEN_URL"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_ONCE": "true", "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001"}, []string{"DOZE_ONCE", "Lambda", "schedule"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_FALLBACK": "0s"}, []string{"DOZE_FALLBACK", "positive"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_TRIGGER": "lambda"}, []string{"DOZE_TRIGGER_FUNCTION", "name or ARN"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_TRIGGER": "http", "DOZE_TRIGGER_URL": "https://x"}, []string{"DOZE_TRIGGER_SECRETS"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_CONNECTIONS": "maybe"}, []string{"DOZE_CONNECTIONS", "keep or close"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_EXEC_MODE": "fast"}, []string{"DOZE_EXEC_MODE", "cache_describe"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_MAX_CONNS": "0"}, []string{"DOZE_MAX_CONNS", "1 to 1000"}},
		{map[string]string{"DOZE_DATABASE_URL": "postgres://h", "DOZE_LOG_LEVEL": "loud"}, []string{"DOZE_LOG_LEVEL", "debug, info, warn or error"}},
	} {
		t.Run(fmt.Sprint(tt.want), func(t *testing.T) {
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			if _, set := tt.set["DOZE_DATABASE_URL"]; !set {
				t.Setenv("DOZE_DATABASE_URL", "")
				os.Unsetenv("DOZE_DATABASE_URL")
			}
			err := Read(&Handler{})
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "hunter2hunter2hunter2"
	t.Setenv("DOZE_DATABASE_URL", "postgres://u:"+secret+"@h/db")
	t.Setenv("DOZE_TRIGGER_SECRETS", secret)
	t.Setenv("DOZE_AUTH_KEYS", secret)
	t.Setenv("DOZE_LISTEN_URL", "postgres://u:"+secret+"@h/db")
	var cfg Enqueue
	var drains Handler
	for _, settings := range []any{&cfg, &drains} {
		if err := Read(settings); err != nil {
			t.Fatal(err)
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, settings := range []any{cfg, drains} {
			if text := fmt.Sprintf(format, settings); strings.Contains(text, secret) {
				t.Errorf("%s prints a secret: %s", format, text)
			}
		}
	}
	if got := cfg.TriggerSecrets.List(); len(got) != 1 || got[0] != secret {
		t.Errorf("List() has %d values, want the one", len(got))
	}
}
