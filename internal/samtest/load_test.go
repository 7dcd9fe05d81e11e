package samtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const (
	templatePath = "../../template.yaml"
)

// object is a mapping of the template.
type object = map[string]any

func readTemplate(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(templatePath)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// load reads a template as CloudFormation does: !Ref x becomes {"Ref": "x"} and
// !Fn x becomes {"Fn::Fn": x}.
func load(t *testing.T, text []byte) object {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	v, err := plain(doc.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	return v.(object)
}

func plain(n *yaml.Node) (any, error) {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		return intrinsic(n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := object{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("line %d: key %q is given twice", n.Content[i].Line, key)
			}
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := plain(c)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return v, nil
}

// known are the short forms that CloudFormation has.
var known = map[string]string{
	"!Ref": "Ref", "!Condition": "Condition", "!GetAtt": "Fn::GetAtt", "!Sub": "Fn::Sub", "!If": "Fn::If",
	"!Not": "Fn::Not", "!Equals": "Fn::Equals", "!And": "Fn::And", "!Or": "Fn::Or", "!Join": "Fn::Join",
	"!Select": "Fn::Select", "!Split": "Fn::Split", "!FindInMap": "Fn::FindInMap",
}

func intrinsic(n *yaml.Node) (any, error) {
	name, ok := known[n.Tag]
	if !ok {
		return nil, fmt.Errorf("line %d: %s is no short form of CloudFormation", n.Line, n.Tag)
	}
	bare := *n
	bare.Tag = ""
	v, err := plain(&bare)
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok && name == "Fn::GetAtt" {
		resource, attribute, _ := strings.Cut(s, ".")
		v = []any{resource, attribute}
	}
	return object{name: v}, nil
}

// at walks to a value by keys; nil when there is none.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// walk calls f for each mapping under v with the path to it.
func walk(path string, v any, f func(path string, m object)) {
	switch v := v.(type) {
	case object:
		f(path, v)
		for k, c := range v {
			walk(path+"."+k, c, f)
		}
	case []any:
		for i, c := range v {
			walk(fmt.Sprintf("%s[%d]", path, i), c, f)
		}
	}
}

// functions are the resources that SAM builds.
func functions(template object) map[string]object {
	found := map[string]object{}
	for name, r := range template["Resources"].(object) {
		if at(r, "Type") == "AWS::Serverless::Function" {
			found[name] = r.(object)
		}
	}
	return found
}
