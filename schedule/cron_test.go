package schedule

import (
	"strings"
	"testing"
	"time"
)

func ticks(t *testing.T, expression, zone, from, until string) []string {
	t.Helper()
	c, err := Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	end, err := time.Parse(time.RFC3339, until)
	if err != nil {
		t.Fatal(err)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for at = c.Next(at); !at.IsZero() && at.Before(end) && len(all) < 100; at = c.Next(at) {
		all = append(all, at.In(location).Format("2006-01-02T15:04:05Z07:00"))
	}
	return all
}

func TestCronTicksWhereClocksChange(t *testing.T) {
	for _, tt := range []struct {
		name, expression, zone, from, until string
		want                                string
	}{
		{"a time that spring leaves out", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-10T00:00:00Z",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"a time that autumn repeats", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-03T00:00:00Z",
			"2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"a midnight that is left out", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-08T00:00:00Z",
			"2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"each hour through spring", "0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z",
			"2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00 2026-03-29T05:00:00+02:00"},
		{"seconds first", "*/20 30 1 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z",
			"2026-01-01T01:30:00Z 2026-01-01T01:30:20Z 2026-01-01T01:30:40Z"},
		{"a leap day", "0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2029-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(ticks(t, tt.expression, tt.zone, tt.from, tt.until), " "); got != tt.want {
				t.Errorf("%s in %s:\n got %s\nwant %s", tt.expression, tt.zone, got, tt.want)
			}
		})
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ expression, zone, want string }{
		{"", "", "cron"},
		{"* * *", "", "five fields"},
		{"61 * * * *", "", "cron"},
		{"0 0 31 2 *", "", "cron"},
		{"@every 5m", "", "@every"},
		{"TZ=UTC 0 0 * * *", "", "zone"},
		{"0 0 * * *", "Mars/Base", "time_zone"},
		{"0 0 * * *", "Local", "time_zone"},
	} {
		if _, err := Parse(tt.expression, tt.zone); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q, %q): %v, want %q in it", tt.expression, tt.zone, err, tt.want)
		}
	}
}
