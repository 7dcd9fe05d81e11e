package samtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/dozequeue/doze/internal/env"
)

// settings that each function reads, by its logical id.
var settings = map[string][]env.Setting{
	"Enqueue": env.Settings(&env.Enqueue{}),
	"Handler": env.Settings(&env.Handler{}),
	"Sweeper": env.Settings(&env.Sweeper{}),
	"Migrate": env.Settings(&env.Migrate{}),
}

// wanted are the variables that a function cannot do without, or that carry a
// parameter of the template.
var wanted = map[string][]string{
	"Globals": {"DOZE_CONNECTIONS", "DOZE_LOG_LEVEL", "DOZE_SCHEMA"},
	"Enqueue": {"DOZE_ALARM", "DOZE_ALARM_GROUP", "DOZE_ALARM_ROLE", "DOZE_ALARM_TARGET", "DOZE_AUTH_KEYS", "DOZE_AUTH_PLATFORM", "DOZE_DATABASE_URL", "DOZE_HMAC_SECRETS", "DOZE_TRIGGER", "DOZE_TRIGGER_FUNCTION"},
	"Handler": {"DOZE_ALARM", "DOZE_ALARM_GROUP", "DOZE_ALARM_ROLE", "DOZE_ALARM_TARGET", "DOZE_DATABASE_URL", "DOZE_TRIGGER", "DOZE_TRIGGER_FUNCTION"},
	"Sweeper": {"DOZE_ALARM", "DOZE_ALARM_GROUP", "DOZE_ALARM_ROLE", "DOZE_ALARM_TARGET", "DOZE_DATABASE_URL", "DOZE_TRIGGER", "DOZE_TRIGGER_FUNCTION"},
	"Migrate": {"DOZE_DATABASE_URL"},
}

// given are the variables that the template sets, of Globals and each function.
func given(template object) map[string]object {
	all := map[string]object{"Globals": at(template, "Globals", "Function", "Environment", "Variables").(object)}
	for name, f := range functions(template) {
		all[name], _ = at(f, "Properties", "Environment", "Variables").(object)
	}
	return all
}

func TestTemplate_SetsWhatIsWanted(t *testing.T) {
	vars := given(load(t, readTemplate(t)))
	for where, want := range wanted {
		if got := slices.Sorted(maps.Keys(vars[where])); !slices.Equal(got, want) {
			t.Errorf("%s: sets %v, want %v", where, got, want)
		}
	}
}

func TestTemplate_SetsOnlyWhatTheFunctionReads(t *testing.T) {
	vars := given(load(t, readTemplate(t)))
	for name, known := range settings {
		reads := func(variable string) bool {
			return slices.ContainsFunc(known, func(s env.Setting) bool { return s.Name == variable })
		}
		for _, where := range []string{"Globals", name} {
			for variable := range vars[where] {
				if !reads(variable) {
					t.Errorf("%s: %s is set and no setting of that function: see internal/env", name, variable)
				}
			}
		}
	}
}
