package samtest

import (
	"os/exec"
	"strings"
	"testing"
)

// recipe is what make would run for a target.
func recipe(t *testing.T, target string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.Command(tool, "--no-print-directory", "-n", "-f", "Makefile", target, "ARTIFACTS_DIR=/artifacts")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestMakefile_BuildsEachFunction(t *testing.T) {
	for name := range functions(load(t, readTemplate(t))) {
		want := "CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -tags lambda.norpc -trimpath -ldflags='-s -w'" +
			" -o /artifacts/bootstrap ./functions/" + strings.ToLower(name)
		got, err := recipe(t, "build-"+name)
		if err != nil || got != want {
			t.Errorf("build-%s: %v\n got %s\nwant %s", name, err, got, want)
		}
	}
	if _, err := recipe(t, "build-Nobody"); err == nil {
		t.Error("make knows a target for a function that does not exist")
	}
}
