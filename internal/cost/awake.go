package cost

import "math"

// Hours of a month, of 30 days.
const Hours = 720

const days = 30

// source is something that touches the database again and again.
type source struct {
	name    string
	n       float64 // touches a month
	length  float64 // hours that each keeps it awake: the work, and the suspend time
	regular bool    // at a fixed period; else independent of each other
}

// asleep is the share of the time that the source leaves the database asleep.
func (s source) asleep() float64 {
	load := s.n * s.length / Hours
	if s.regular {
		return math.Max(0, 1-load)
	}
	return math.Exp(-load)
}

// awake returns the hours of a month that the database is awake, and how often it wakes up.
func awake(sources []source) (hours, wakes float64) {
	asleep := 1.0
	for _, s := range sources {
		asleep *= s.asleep()
	}
	for i, s := range sources {
		// A touch wakes it if nothing else keeps it awake just then. The one before of a regular source never
		// does, or always.
		others := 1.0
		for j, o := range sources {
			if j != i || !o.regular {
				others *= o.asleep()
			}
		}
		if s.regular && s.asleep() == 0 {
			others = 0
		}
		wakes += s.n * others
	}
	return Hours * (1 - asleep), wakes
}

// Part is one thing that keeps the database awake.
type Part struct {
	What  string  `json:"what"`
	Times float64 `json:"times"`
	// Alone is the hours that it would keep the database awake by itself, and Adds those that would be saved
	// without it.
	Alone float64 `json:"alone_hours"`
	Adds  float64 `json:"added_hours"`
}

func parts(sources []source) []Part {
	all, _ := awake(sources)
	out := []Part{}
	for i, s := range sources {
		if s.n == 0 {
			continue
		}
		alone, _ := awake(sources[i : i+1])
		without := append(append([]source{}, sources[:i]...), sources[i+1:]...)
		rest, _ := awake(without)
		out = append(out, Part{What: s.name, Times: s.n, Alone: alone, Adds: all - rest})
	}
	return out
}
