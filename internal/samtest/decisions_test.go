package samtest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// violations lists where a template breaks a decision of this project.
func violations(template object) []string {
	var wrong []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	resources := template["Resources"].(object)
	in := func(keys ...string) any { return at(resources, keys...) }
	same := func(want any, keys ...string) {
		must(reflect.DeepEqual(in(keys...), want), "%s: %v, want %v", strings.Join(keys, "."), in(keys...), want)
	}

	names := slices.Sorted(maps.Keys(functions(template)))
	must(slices.Equal(names, []string{"Enqueue", "Handler", "Migrate", "Sweeper"}), "functions: %v", names)
	globals := at(template, "Globals", "Function")
	must(at(globals, "Runtime") == "provided.al2023", "Globals: Runtime")
	must(reflect.DeepEqual(at(globals, "Architectures"), []any{"arm64"}), "Globals: Architectures")
	must(at(globals, "Handler") == "bootstrap", "Globals: Handler")
	novalue := object{"Ref": "AWS::NoValue"}
	vpc, _ := at(globals, "VpcConfig", "Fn::If").([]any)
	must(len(vpc) == 3 && vpc[0] == "HasVpc" && reflect.DeepEqual(vpc[2], novalue), "Globals: VpcConfig: want it only with HasVpc")

	keys := map[string]string{"Enqueue": "enqueue", "Handler": "drain", "Sweeper": "sweep", "Migrate": "owner"}
	for _, name := range names {
		same("makefile", name, "Metadata", "BuildMethod")
		same(object{"Fn::GetAtt": []any{name + "Role", "Arn"}}, name, "Properties", "Role")
		same(object{"Ref": name + "Log"}, name, "Properties", "LoggingConfig", "LogGroup")
		same(object{"Ref": "LogRetentionDays"}, name+"Log", "Properties", "RetentionInDays")
		same("Retain", name+"Log", "DeletionPolicy")
		same("Retain", name+"Log", "UpdateReplacePolicy")
		must(in(name, "Properties", "Policies") == nil, "%s: Policies: want them on the role", name)
		same(object{"Fn::If": []any{
			"HasSecret",
			object{"Fn::Sub": "{{resolve:secretsmanager:${DatabaseSecretArn}:SecretString:" + keys[name] + "}}"},
			object{"Ref": "DatabaseUrl"},
		}}, name, "Properties", "Environment", "Variables", "DOZE_DATABASE_URL")
		if v := in(name, "Properties", "ReservedConcurrentExecutions"); v != nil {
			list, _ := at(v, "Fn::If").([]any)
			must(len(list) == 3 && list[0] == "Limits"+name && reflect.DeepEqual(list[2], novalue), "%s: ReservedConcurrentExecutions: want it unset by default", name)
		}
	}
	for _, name := range []string{"Handler", "Sweeper", "Migrate"} {
		same(0, name, "Properties", "EventInvokeConfig", "MaximumRetryAttempts")
		same(60, name, "Properties", "EventInvokeConfig", "MaximumEventAgeInSeconds")
	}

	// Who wakes whom.
	self := "${AWS::StackName}-handler"
	same(object{"Fn::Sub": self}, "Handler", "Properties", "FunctionName")
	same("Allow", "Handler", "Properties", "RecursiveLoop")
	for _, name := range []string{"Enqueue", "Sweeper", "Migrate"} {
		must(in(name, "Properties", "RecursiveLoop") == nil, "%s: RecursiveLoop: want it on Handler only", name)
		must(in(name, "Properties", "FunctionName") == nil, "%s: FunctionName: want it on Handler only", name)
	}
	same(object{"Fn::Sub": self}, "Handler", "Properties", "Environment", "Variables", "DOZE_TRIGGER_FUNCTION")
	for _, name := range []string{"Enqueue", "Handler", "Sweeper"} {
		same("lambda", name, "Properties", "Environment", "Variables", "DOZE_TRIGGER")
	}
	for _, name := range []string{"Enqueue", "Sweeper"} {
		same(object{"Ref": "Handler"}, name, "Properties", "Environment", "Variables", "DOZE_TRIGGER_FUNCTION")
	}

	// Rights: each role writes its own logs; three wake Handler; no more.
	handler := object{"Fn::GetAtt": []any{"Handler", "Arn"}}
	wakes := map[string]any{
		"Enqueue": handler, "Sweeper": handler, "Migrate": nil,
		"Handler": object{"Fn::Sub": "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:" + self},
	}
	for name, target := range wakes {
		rights := map[string]any{}
		policies, _ := in(name+"Role", "Properties", "Policies").([]any)
		for _, p := range policies {
			statements, _ := at(p, "PolicyDocument", "Statement").([]any)
			for _, s := range statements {
				must(at(s, "Effect") == "Allow", "%sRole: Effect %v", name, at(s, "Effect"))
				actions, ok := at(s, "Action").([]any)
				if !ok {
					actions = []any{at(s, "Action")}
				}
				for _, a := range actions {
					rights[fmt.Sprint(a)] = at(s, "Resource")
				}
			}
		}
		log := object{"Fn::GetAtt": []any{name + "Log", "Arn"}}
		want := map[string]any{"logs:CreateLogStream": log, "logs:PutLogEvents": log}
		if target != nil {
			want["lambda:InvokeFunction"] = target
		}
		must(reflect.DeepEqual(rights, want), "%sRole: rights %v, want %v", name, rights, want)
		managed, _ := in(name+"Role", "Properties", "ManagedPolicyArns", "Fn::If").([]any)
		must(len(managed) == 3 && managed[0] == "HasVpc" && reflect.DeepEqual(managed[2], novalue) &&
			strings.Contains(fmt.Sprint(managed[1]), "AWSLambdaENIManagementAccess"), "%sRole: ManagedPolicyArns %v", name, managed)
	}

	// The door.
	same(object{"Fn::If": []any{"IsOpen", "false", "true"}}, "Enqueue", "Properties", "Environment", "Variables", "DOZE_AUTH_PLATFORM")
	same(object{"Ref": "UrlAuth"}, "Enqueue", "Properties", "FunctionUrlConfig", "AuthType")
	parameter := func(keys ...string) any { return at(template["Parameters"], keys...) }
	must(parameter("UrlAuth", "Default") == "AWS_IAM", "UrlAuth: Default %v", parameter("UrlAuth", "Default"))
	must(reflect.DeepEqual(parameter("UrlAuth", "AllowedValues"), []any{"AWS_IAM", "NONE"}), "UrlAuth: AllowedValues")
	var open []string
	for name, r := range resources {
		if at(r, "Type") == "AWS::Lambda::Permission" {
			must(at(r, "Condition") == "IsOpen", "%s: want it only with IsOpen", name)
			open = append(open, fmt.Sprintf("%v %v %v", at(r, "Properties", "Action"), at(r, "Properties", "FunctionUrlAuthType"), at(r, "Properties", "InvokedViaFunctionUrl")))
		}
	}
	slices.Sort(open)
	must(slices.Equal(open, []string{"lambda:InvokeFunction <nil> true", "lambda:InvokeFunctionUrl NONE <nil>"}), "open URL: permissions %q", open)
	for _, name := range []string{"DatabaseUrl", "AuthKeys", "HmacSecrets"} {
		must(parameter(name, "NoEcho") == true, "%s: NoEcho", name)
	}
	must(at(template, "Rules", "GuardedUrl") != nil && at(template, "Rules", "OneDatabase") != nil, "Rules: want GuardedUrl and OneDatabase")

	// The sweep.
	same("ScheduleV2", "Sweeper", "Properties", "Events", "Sweep", "Type")
	same(object{"Ref": "SweepRate"}, "Sweeper", "Properties", "Events", "Sweep", "Properties", "ScheduleExpression")
	same(true, "Sweeper", "Properties", "Events", "Sweep", "Properties", "OmitName")
	must(parameter("SweepRate", "Default") == "rate(1 hour)", "SweepRate: Default %v", parameter("SweepRate", "Default"))
	must(strings.Contains(fmt.Sprint(parameter("SweepRate", "Description")), "suspends"), "SweepRate: Description: want why it must be above the suspend time")
	for _, name := range []string{"HandlerConcurrency", "EnqueueConcurrency"} {
		must(parameter(name, "Default") == 0, "%s: Default %v, want 0", name, parameter(name, "Default"))
	}

	// The alarms.
	watched := map[string]bool{}
	for name, r := range resources {
		if at(r, "Type") != "AWS::CloudWatch::Alarm" {
			continue
		}
		dimension := at(r, "Properties", "Dimensions").([]any)[0]
		watched[fmt.Sprint(at(dimension, "Value", "Ref"), " ", at(r, "Properties", "MetricName"))] = true
		actions, _ := at(r, "Properties", "AlarmActions", "Fn::If").([]any)
		must(len(actions) == 3 && actions[0] == "HasAlarmTopic", "%s: AlarmActions", name)
		must(at(r, "Properties", "TreatMissingData") != nil, "%s: TreatMissingData", name)
	}
	for _, want := range []string{"Handler Errors", "Handler Throttles", "Handler AsyncEventAge", "Handler AsyncEventsDropped",
		"Enqueue Url5xxCount", "Sweeper Errors", "Sweeper Invocations"} {
		must(watched[want], "alarms: none on %s", want)
	}
	slices.Sort(wrong)
	return wrong
}

func TestTemplate_KeepsTheDecisions(t *testing.T) {
	for _, v := range violations(load(t, readTemplate(t))) {
		t.Error(v)
	}
}

func TestDecisionsCheck_FindsMistakes(t *testing.T) {
	for _, m := range []struct{ old, new, want string }{
		{"RecursiveLoop: Allow", "RecursiveLoop: Terminate", "RecursiveLoop"},
		{"MaximumRetryAttempts: 0\n        MaximumEvent", "MaximumRetryAttempts: 2\n        MaximumEvent", "MaximumRetryAttempts"},
		{"MaximumEventAgeInSeconds: 60", "MaximumEventAgeInSeconds: 3600", "MaximumEventAge"},
		{"[arm64]", "[x86_64]", "Architectures"},
		{"Action: lambda:InvokeFunction\n                Resource: !GetAtt Handler.Arn", "Action: lambda:*\n                Resource: '*'", "EnqueueRole"},
		{"Action: [logs:CreateLogStream, logs:PutLogEvents]", "Action: ['*']", "EnqueueRole"},
		{"Default: AWS_IAM", "Default: NONE", "UrlAuth"},
		{"!If [LimitsHandler, !Ref HandlerConcurrency, !Ref AWS::NoValue]", "5", "ReservedConcurrent"},
		{"SecretString:drain", "SecretString:owner", "DOZE_DATABASE_URL"},
		{"Default: rate(1 hour)", "Default: rate(1 minute)", "SweepRate"},
		{"OmitName: true", "Name: sweep", "OmitName"},
		{"InvokedViaFunctionUrl: true", "InvokedViaFunctionUrl: false", "open URL"},
		{"!If [IsOpen, 'false', 'true']", "'true'", "DOZE_AUTH_PLATFORM"},
		{"    Condition: IsOpen", "    DependsOn: Enqueue", "IsOpen"},
		{"MetricName: Url5xxCount", "MetricName: Url4xxCount", "Url5xxCount"},
		{"Default: ''\n    NoEcho: true\n    Description: >-\n      One", "Default: ''\n    Description: >-\n      One", "DatabaseUrl"},
		{"DeletionPolicy: Retain", "DeletionPolicy: Delete", "DeletionPolicy"},
	} {
		text := string(readTemplate(t))
		if !strings.Contains(text, m.old) {
			t.Errorf("template.yaml has no %q to change", m.old)
			continue
		}
		found := violations(load(t, []byte(strings.Replace(text, m.old, m.new, 1))))
		if !strings.Contains(strings.Join(found, "\n"), m.want) {
			t.Errorf("%q passed as %q; found %q", m.old, m.new, found)
		}
	}
}
