package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // functions run on images without zone files

	cron "github.com/netresearch/go-cron"
)

// Cron is a cron expression in a time zone.
type Cron struct {
	spec     cron.Schedule // by the wall clock if fixed, else by real time
	location *time.Location
	fixed    bool
}

// parser takes five fields, or six of which the first is seconds, and names such as @daily.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads a cron expression: five fields (minute, hour, day of the month, month, day of the
// week), six with seconds first, or @hourly, @daily, @weekly, @monthly, @yearly. Zone is
// an IANA name such as Europe/Berlin; empty means UTC.
//
// Where clocks change: an expression with * for the hour ticks as real time goes by. Any other ticks
// by the wall clock: a time that is left out in spring ticks once, at the moment of the
// change, and a time that comes twice in autumn ticks once, the first time.
func Parse(expression, zone string) (*Cron, error) {
	if zone == "" {
		zone = "UTC"
	}
	if zone == "Local" {
		return nil, errors.New(`time_zone "Local": want an IANA name such as Europe/Berlin, since functions have no place`)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("time_zone %q: want an IANA name such as Europe/Berlin, or UTC", zone)
	}
	if strings.Contains(expression, "TZ=") || strings.HasPrefix(strings.TrimSpace(expression), "@every") {
		return nil, fmt.Errorf("cron %q: want five or six fields, or @daily and the like; the zone has a field of its own, and @every has no fixed times", expression)
	}
	spec, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w; want five fields (minute, hour, day, month, weekday), or six with seconds first", expression, err)
	}
	c := &Cron{spec: spec, location: location, fixed: !everyHour(expression)}
	if s, ok := spec.(*cron.SpecSchedule); ok {
		s.Location = time.UTC
		if !c.fixed {
			s.Location = location
		}
	}
	if c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: it never comes", expression)
	}
	return c, nil
}

// everyHour reports whether an expression that parses has * for the hour.
func everyHour(expression string) bool {
	fields := strings.Fields(expression)
	switch len(fields) {
	case 5:
		return fields[1] == "*"
	case 6:
		return fields[2] == "*"
	}
	return len(fields) == 1 && fields[0] == "@hourly"
}

// Next returns the first tick after t, in UTC; the zero time if there is none within some years.
func (c *Cron) Next(t time.Time) time.Time {
	if !c.fixed {
		next := c.spec.Next(t.In(c.location))
		if next.IsZero() {
			return next
		}
		return next.UTC()
	}
	// The library's own reading of a zone repeats autumn's hour and loses a midnight that is left
	// out, so it reads wall clocks here, as if they were UTC's.
	for wall := asUTC(t.In(c.location)); ; {
		wall = c.spec.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if at := c.instant(wall); at.After(t) {
			return at
		}
	}
}

// asUTC is what a clock shows, as if UTC's clock showed it.
func asUTC(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// instant is when the clock of the zone first shows wall, or the moment at which it jumps over it.
func (c *Cron) instant(wall time.Time) time.Time {
	var before time.Time
	for i, nearby := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // the offsets before and after a change
		_, offset := wall.Add(nearby).In(c.location).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if asUTC(at.In(c.location)).Equal(wall) {
			return at
		}
		if i == 0 {
			before = at
		}
	}
	change, _ := before.In(c.location).ZoneBounds()
	return change.UTC()
}
