package main

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
)

// What docs/cost.md shows is what the command prints, and each default price has its source there.
func TestCostIsWhatItsPageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"cost", "--jobs", "10000", "--burst", "10"}, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s", code, &log)
	}
	printed, _, _ := strings.Cut(out.String(), "\n\nEstimates")
	if !strings.Contains(string(page), printed) {
		t.Errorf("the page does not show what is printed:\n%s", printed)
	}
	for i := range reflect.TypeFor[costCmd]().NumField() {
		f := reflect.TypeFor[costCmd]().Field(i)
		if !strings.HasPrefix(f.Name, "Price") {
			continue
		}
		var flag []byte // PriceLambdaGBSecond is named, the others are as kong names them
		for j, r := range f.Name {
			if j > 0 && r >= 'A' && r <= 'Z' {
				flag = append(flag, '-')
			}
			flag = append(flag, strings.ToLower(string(r))...)
		}
		name := f.Tag.Get("name")
		if name == "" {
			name = string(flag)
		}
		if row := "| `--" + name + "` | " + f.Tag.Get("default") + " |"; !strings.Contains(string(page), row) {
			t.Errorf("the page has no row %q", row)
		}
	}
}
