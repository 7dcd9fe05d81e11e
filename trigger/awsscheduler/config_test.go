package awsscheduler

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var good = Config{
	TargetARN: "arn:aws:lambda:eu-central-1:123456789012:function:drain",
	RoleARN:   "arn:aws:iam::123456789012:role/doze-alarm",
	Region:    "eu-central-1",
}

func TestConfig_NamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string // empty: it is right
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.TargetARN += ":live" }, ""},
		{func(c *Config) { c.TargetARN = strings.Replace(c.TargetARN, "arn:aws:", "arn:aws-cn:", 1) }, ""},
		{func(c *Config) { c.RoleARN = "arn:aws:iam::123456789012:role/service-role/doze" }, ""},
		{func(c *Config) { c.Grain = time.Second }, ""},
		{func(c *Config) { c.TargetARN = "" }, "TargetARN: empty"},
		{func(c *Config) { c.TargetARN = "drain" }, `TargetARN: "drain"`},
		{func(c *Config) { c.TargetARNs = map[string]string{"mail": "drain"} }, `TargetARNs["mail"]: "drain"`},
		{func(c *Config) { c.RoleARN = "" }, "RoleARN:"},
		{func(c *Config) { c.RoleARN = "doze-alarm" }, "RoleARN:"},
		{func(c *Config) { c.Group = "a group" }, "Group:"},
		{func(c *Config) { c.Prefix = "a prefix" }, "Prefix:"},
		{func(c *Config) { c.Prefix = strings.Repeat("x", 25) }, "Prefix:"},
		{func(c *Config) { c.Grain = time.Millisecond }, "Grain:"},
		{func(c *Config) { c.Grain = 1500 * time.Millisecond }, "Grain:"},
		{func(c *Config) { c.Grain = -time.Minute }, "Grain:"},
		{func(c *Config) { c.Timeout = -1 }, "Timeout"},
		{func(c *Config) { c.Attempts = -1 }, "Attempts"},
		{func(c *Config) { c.Endpoint = "scheduler" }, "Endpoint:"},
	} {
		config := good
		c.change(&config)
		_, err := New(config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", config, err, c.want)
		}
	}
	if _, err := NewWithClient(nil, good); err == nil {
		t.Error("no error for no client")
	}
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	config := good
	config.Region = ""
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "Region: empty") {
		t.Errorf("got %v, want that the region is missing", err)
	}
}

func TestScheduleName_FitsAndTellsApart(t *testing.T) {
	long := strings.Repeat("q", 63)
	rule := regexp.MustCompile(`^[0-9a-zA-Z-_.]{1,64}$`)
	names := map[string][3]string{}
	for _, parts := range [][3]string{
		{"doze", "mail", "a"}, {"doze", "mail", "b"}, {"doze", "images", "a"}, {"other", "mail", "a"},
		{"doze", "mail-a", ""}, {"doze-mail", "a", ""}, {"doze", "mail", ""},
		{"doze", long + "1", "a"}, {"doze", long + "2", "a"}, {"doze", long, "1a"}, {strings.Repeat("p", 24), long + "1", "a"},
		{"doze", "é/ \n☃", "a"}, {"doze", "é/ \n?", "a"}, {"doze", "mail", strings.Repeat("i", 999)},
	} {
		name := scheduleName(parts[0], parts[1], parts[2])
		if !rule.MatchString(name) {
			t.Errorf("%q: %q, want %s", parts, name, rule)
		}
		if other, ok := names[name]; ok {
			t.Errorf("%q and %q have the same name, %s", parts, other, name)
		}
		names[name] = parts
		if again := scheduleName(parts[0], parts[1], parts[2]); again != name {
			t.Errorf("%q: %q, then %q", parts, name, again)
		}
	}
}

func FuzzScheduleName(f *testing.F) {
	f.Add("doze", "mail", "0b9c6c1e-6f4e-4c55-9d0e-000000000017")
	f.Fuzz(func(t *testing.T, prefix, queueName, alarm string) {
		if name := scheduleName(prefix, queueName, alarm); !groupName.MatchString(name) {
			t.Errorf("%q, want %s", name, groupName)
		}
	})
}
