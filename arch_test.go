package doze_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dozequeue/doze"

// may says which packages of this module each package may import, besides itself and what is below it.
// Data flows one way: enqueue → queue ← handler, sweeper.
var may = map[string][]string{
	"queue":                           {},
	"migrations":                      {"queue"},
	"enqueue":                         {"queue", "internal/signature"},
	"examples/webhooks":               {"enqueue", "queue"},
	"handler":                         {"queue", "schedule", "internal/receive"},
	"sweeper":                         {"queue", "schedule", "internal/receive"},
	"schedule":                        {"queue"},
	"resident":                        {"handler", "queue", "trigger/notify"},
	"trigger":                         {"queue", "internal/signature"},
	"trigger/awslambda":               {"queue", "trigger/internal/awsenv", "trigger/internal/wire"},
	"trigger/awslambda/awsdefault":    {"trigger/awslambda", "queue"},
	"trigger/awsscheduler":            {"queue", "trigger/internal/awsenv", "trigger/internal/wire"},
	"trigger/awsscheduler/awsdefault": {"trigger/awsscheduler", "queue"},
	"trigger/notify":                  {"queue", "trigger/internal/wire"},
	"trigger/triggertest":             {"queue"},
	"internal/receive":                {"internal/signature"},
	"internal/signature":              {},
	"internal/env":                    {},
	"internal/database":               {"internal/env", "queue"},
	"internal/sleepy":                 {"internal/pgdev"},
	"internal/doctor":                 {"migrations", "queue"},
	"internal/cost":                   {},
	"internal/serve":                  {},
	"internal/pgdev":                  {},
	"internal/dbtest":                 {"internal/pgdev"},
	"internal/lambdahttp":             {},
}

// outside says which packages alone may import a module that users of the others should not get.
var outside = map[string][]string{
	"github.com/kelseyhightower/envconfig":       {"internal/env"},
	"github.com/aws/aws-lambda-go":               {"functions/", "internal/lambda"},
	"github.com/aws/aws-sdk-go-v2/config":        {"trigger/awslambda/awsdefault", "trigger/awsscheduler/awsdefault"},
	"github.com/aws/aws-sdk-go-v2":               {"trigger/internal/awsenv", "trigger/awslambda", "trigger/awsscheduler", "internal/lambdatest", "internal/schedulertest"},
	"github.com/netresearch/go-cron":             {"schedule"},
	"github.com/alecthomas/kong":                 {"cmd/doze"},
	"github.com/fergusstrange/embedded-postgres": {"internal/pgdev"},
	"github.com/go-chi/chi":                      {"enqueue"},
	"testing":                                    {"trigger/triggertest", "internal/dbtest"},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	readSources(t)
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, ruled := may[name]
		for _, imported := range p.Imports {
			if inside, ok := strings.CutPrefix(imported, module+"/"); ok && ruled && !slices.Contains(allowed, inside) && !strings.HasPrefix(inside, name+"/internal") {
				t.Errorf("%s imports %s: not allowed", name, inside)
			}
			for guarded, places := range outside {
				if imported != guarded && !strings.HasPrefix(imported, guarded+"/") {
					continue
				}
				if !slices.ContainsFunc(places, func(p string) bool { return name == p || strings.HasPrefix(name, strings.TrimSuffix(p, "/")) }) {
					t.Errorf("%s imports %s: only %s may", name, imported, strings.Join(places, ", "))
				}
			}
		}
	}
	if seen < len(may) {
		t.Errorf("saw %d packages, want at least the %d that have a rule", seen, len(may))
	}
}

// Only a resident process has a session to keep: everything else passes through a transaction-mode pooler.
func TestOnlyAResidentProcessListens(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "bench" || path == "resident"): // rivals listen
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("WaitForNotification(")) || bytes.Contains(text, []byte(`"LISTEN `)) {
			t.Errorf("%s listens: only package resident may", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readSources opens what the go command reads for us, or this test's result would be taken from the
// cache after a change.
func readSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
