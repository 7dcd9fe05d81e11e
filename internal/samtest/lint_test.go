package samtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lint runs cfn-lint, which also makes CloudFormation out of the template as a
// deploy does. Only its errors count: warnings differ by version.
func lint(t *testing.T, path string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("cfn-lint")
	if err != nil {
		t.Skip("cfn-lint is not installed: pip install cfn-lint")
	}
	out, err := exec.Command(tool, "--non-zero-exit-code", "error", "--regions", "eu-central-1", "--template", path).CombinedOutput()
	return string(out), err
}

func TestTemplate_PassesCfnLint(t *testing.T) {
	if out, err := lint(t, templatePath); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCfnLint_FindsMistakes(t *testing.T) {
	text := strings.Replace(string(readTemplate(t)), "MetricName: Url5xxCount", "Metric: Url5xxCount", 1)
	path := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := lint(t, path); err == nil || !strings.Contains(out, "Metric") {
		t.Errorf("passed: %v\n%s", err, out)
	}
}
