package samtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pattern makes regexp2 an engine of the validator: the schema has a negative
// look-ahead, which Go's own engine does not know.
type pattern regexp2.Regexp

func (p *pattern) MatchString(s string) bool {
	ok, err := (*regexp2.Regexp)(p).MatchString(s)
	return err == nil && ok
}

func (p *pattern) String() string { return (*regexp2.Regexp)(p).String() }

func compile(s string) (jsonschema.Regexp, error) {
	re, err := regexp2.Compile(s, regexp2.ECMAScript)
	if err != nil {
		return nil, err
	}
	return (*pattern)(re), nil
}

// checker validates each resource against its own definition. Against the whole
// schema an error would list a dozen kinds of resource that it is not.
type checker struct {
	compiler *jsonschema.Compiler
	byType   map[string]string // type of resource: name of definition
	globals  string
}

const schemaURL = "sam.schema.json"

func newChecker(t *testing.T) *checker {
	t.Helper()
	dir := os.Getenv("DOZE_TESTDATA")
	if dir == "" {
		t.Skip("DOZE_TESTDATA is not set: want the folder that holds sam.schema.json, from samtranslator/schema in aws/serverless-application-model")
	}
	file, err := os.Open(filepath.Join(dir, schemaURL))
	if os.IsNotExist(err) {
		t.Skipf("DOZE_TESTDATA: no %s there", schemaURL)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	doc, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{compiler: jsonschema.NewCompiler(), byType: map[string]string{}}
	c.compiler.UseRegexpEngine(compile)
	if err := c.compiler.AddResource(schemaURL, doc); err != nil {
		t.Fatal(err)
	}
	for name, d := range doc.(object)["definitions"].(object) {
		if kinds, ok := at(d, "properties", "Type", "enum").([]any); ok && strings.HasSuffix(name, "__Resource") {
			c.byType[kinds[0].(string)] = name
		}
		if strings.HasSuffix(name, "__Globals") && at(d, "properties", "Function") != nil {
			c.globals = name
		}
	}
	if len(c.byType) < 5 || c.globals == "" {
		t.Fatalf("sam.schema.json has another shape: found %d types and globals %q", len(c.byType), c.globals)
	}
	return c
}

// check returns what is wrong with a template, a line each.
func (c *checker) check(template object) ([]string, error) {
	var wrong []string
	one := func(what, definition string, v any) error {
		s, err := c.compiler.Compile(schemaURL + "#/definitions/" + definition)
		if err != nil {
			return err
		}
		// Through JSON, so that numbers are what the validator expects.
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		v, err = jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if err != nil {
			return err
		}
		if err := s.Validate(v); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", what, err))
		}
		return nil
	}
	if g, ok := template["Globals"]; ok {
		if err := one("Globals", c.globals, g); err != nil {
			return nil, err
		}
	}
	for name, r := range template["Resources"].(object) {
		kind, _ := at(r, "Type").(string)
		definition, ok := c.byType[kind]
		if !ok {
			if strings.HasPrefix(kind, "AWS::Serverless::") {
				wrong = append(wrong, fmt.Sprintf("%s: no such type: %s", name, kind))
			}
			continue // other resources have no definition here
		}
		if err := one(name, definition, r); err != nil {
			return nil, err
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

func TestTemplate_SatisfiesTheSchemaOfSAM(t *testing.T) {
	wrong, err := newChecker(t).check(load(t, readTemplate(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestSchemaCheck_FindsMistakes(t *testing.T) {
	c := newChecker(t)
	for name, m := range map[string]struct{ old, new, where string }{
		"key of a function": {"RecursiveLoop:", "RecursiveLop:", "Handler"},
		"key of the URL":    {"AuthType: !Ref UrlAuth", "AuthTyp: !Ref UrlAuth", "Enqueue"},
		"key of the event":  {"ScheduleExpression:", "ScheduleExpresion:", "Sweeper"},
		"key of the invoke": {"MaximumEventAgeInSeconds: 60", "MaximumEventAge: 60", "Handler"},
		"key of globals":    {"    Architectures:", "    Architecture:", "Globals"},
		"type of the event": {"Type: ScheduleV2", "Type: ScheduleV3", "Sweeper"},
		"type of a value":   {"MaximumRetryAttempts: 0\n        MaximumEvent", "MaximumRetryAttempts: none\n        MaximumEvent", "Handler"},
		"type of resource":  {"Type: AWS::Serverless::Function", "Type: AWS::Serverless::Functon", "Enqueue"},
	} {
		t.Run(name, func(t *testing.T) {
			text := string(readTemplate(t))
			if !strings.Contains(text, m.old) {
				t.Fatalf("template.yaml has no %q to change", m.old)
			}
			wrong, err := c.check(load(t, []byte(strings.Replace(text, m.old, m.new, 1))))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, m.where+":") }) {
				t.Errorf("%q passed as %q; found %q", m.old, m.new, wrong)
			}
		})
	}
}
