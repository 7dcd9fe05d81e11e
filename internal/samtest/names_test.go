package samtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// attributes that the template may ask of a type, for those in use.
var attributes = map[string][]string{
	"AWS::Serverless::Function": {"Arn"},
	"AWS::IAM::Role":            {"Arn", "RoleId"},
	"AWS::Logs::LogGroup":       {"Arn"},
	"AWS::CloudWatch::Alarm":    {"Arn"},
	"AWS::Lambda::Url":          {"FunctionUrl", "FunctionArn"},
}

// properties of the types that the schema of SAM does not know, for those in
// use. From the CloudFormation reference.
var properties = map[string][]string{
	"AWS::IAM::Role":          {"AssumeRolePolicyDocument", "ManagedPolicyArns", "Policies"},
	"AWS::Logs::LogGroup":     {"RetentionInDays"},
	"AWS::Lambda::Permission": {"FunctionName", "Action", "Principal", "FunctionUrlAuthType", "InvokedViaFunctionUrl"},
	"AWS::CloudWatch::Alarm": {"AlarmDescription", "Namespace", "MetricName", "Dimensions", "Statistic", "Period",
		"EvaluationPeriods", "ComparisonOperator", "Threshold", "TreatMissingData", "AlarmActions", "OKActions"},
}

var pseudo = []string{"AWS::AccountId", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackName", "AWS::URLSuffix"}

var inSub = regexp.MustCompile(`\$\{([^!}]+)\}`)

// types of all resources, with those that SAM makes.
func types(template object) map[string]string {
	found := map[string]string{}
	for name, r := range template["Resources"].(object) {
		found[name], _ = at(r, "Type").(string)
		if at(r, "Properties", "FunctionUrlConfig") != nil {
			found[name+"Url"] = "AWS::Lambda::Url"
		}
	}
	return found
}

// unknownNames lists what the template refers to and does not have, and what it
// has and nothing refers to.
func unknownNames(template object) []string {
	var wrong []string
	kinds := types(template)
	parameters := template["Parameters"].(object)
	conditions := template["Conditions"].(object)
	used := map[string]bool{}
	ref := func(path, name string) {
		used[name] = true
		_, isParameter := parameters[name]
		_, isResource := kinds[name]
		if !isParameter && !isResource && !slices.Contains(pseudo, name) {
			wrong = append(wrong, fmt.Sprintf("%s: no parameter or resource %q", path, name))
		}
	}
	getAtt := func(path, name, attribute string) {
		used[name] = true
		if !slices.Contains(attributes[kinds[name]], attribute) {
			wrong = append(wrong, fmt.Sprintf("%s: no attribute %s.%s", path, name, attribute))
		}
	}
	condition := func(path, name string) {
		used[name] = true
		if _, ok := conditions[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s: no condition %q", path, name))
		}
	}
	for _, section := range []string{"Globals", "Resources", "Conditions", "Rules", "Outputs"} {
		walk(section, template[section], func(path string, m object) {
			if name, ok := m["Ref"].(string); ok {
				ref(path, name)
			}
			if pair, ok := m["Fn::GetAtt"].([]any); ok {
				getAtt(path, pair[0].(string), pair[1].(string))
			}
			if text, ok := m["Fn::Sub"].(string); ok {
				for _, found := range inSub.FindAllStringSubmatch(text, -1) {
					if name, attribute, dotted := strings.Cut(found[1], "."); dotted {
						getAtt(path, name, attribute)
					} else {
						ref(path, found[1])
					}
				}
			}
			if list, ok := m["Fn::If"].([]any); ok {
				condition(path, list[0].(string))
			}
			if name, ok := m["Condition"].(string); ok {
				condition(path, name)
			}
			if properties[fmt.Sprint(m["Type"])] != nil {
				for p := range m["Properties"].(object) {
					if !slices.Contains(properties[m["Type"].(string)], p) {
						wrong = append(wrong, fmt.Sprintf("%s: %s has no property %s", path, m["Type"], p))
					}
				}
			}
		})
	}
	for name := range parameters {
		if !used[name] {
			wrong = append(wrong, fmt.Sprintf("Parameters.%s: used nowhere", name))
		}
	}
	for name := range conditions {
		if !used[name] {
			wrong = append(wrong, fmt.Sprintf("Conditions.%s: used nowhere", name))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestTemplate_NamesWhatExists(t *testing.T) {
	for _, w := range unknownNames(load(t, readTemplate(t))) {
		t.Error(w)
	}
}

func TestNamesCheck_FindsMistakes(t *testing.T) {
	for _, m := range []struct{ old, new, want string }{
		{"DOZE_SCHEMA: !Ref Schema", "DOZE_SCHEMA: !Ref Shema", `"Shema"`},
		{"Role: !GetAtt EnqueueRole.Arn", "Role: !GetAtt EnqueuRole.Arn", "EnqueuRole.Arn"},
		{"!GetAtt HandlerLog.Arn", "!GetAtt HandlerLog.Arm", "HandlerLog.Arm"},
		{"${DatabaseSecretArn}:SecretString:enqueue", "${DatabaseSecret}:SecretString:enqueue", `"DatabaseSecret"`},
		{"!If [LimitsHandler,", "!If [LimitHandler,", `"LimitHandler"`},
		{"Condition: IsOpen", "Condition: IsClosed", `"IsClosed"`},
		{"DOZE_LOG_LEVEL: !Ref LogLevel", "DOZE_LOG_LEVEL: info", "Parameters.LogLevel"},
		{"RetentionInDays:", "RetentionDays:", "RetentionDays"},
		{"ComparisonOperator:", "Comparison:", "Comparison"},
	} {
		text := string(readTemplate(t))
		if !strings.Contains(text, m.old) {
			t.Fatalf("template.yaml has no %q to change", m.old)
		}
		wrong := unknownNames(load(t, []byte(strings.Replace(text, m.old, m.new, 1))))
		if !strings.Contains(strings.Join(wrong, "\n"), m.want) {
			t.Errorf("%q passed as %q; found %q", m.old, m.new, wrong)
		}
	}
}

func TestTemplate_LabelsAndGroupsEachParameter(t *testing.T) {
	template := load(t, readTemplate(t))
	face := at(template, "Metadata", "AWS::CloudFormation::Interface")
	labels := at(face, "ParameterLabels").(object)
	var grouped []string
	for _, g := range at(face, "ParameterGroups").([]any) {
		for _, p := range at(g, "Parameters").([]any) {
			grouped = append(grouped, p.(string))
		}
	}
	parameters := template["Parameters"].(object)
	for name, p := range parameters {
		if labels[name] == nil || !slices.Contains(grouped, name) || at(p, "Description") == nil {
			t.Errorf("%s: want a label, a group and a Description", name)
		}
		if _, ok := at(p, "Default").(string); !ok && at(p, "Default") == nil {
			t.Errorf("%s: want a Default", name)
		}
	}
	if len(labels) != len(parameters) || len(grouped) != len(parameters) {
		t.Errorf("%d parameters, %d labels, %d in groups", len(parameters), len(labels), len(grouped))
	}
}
