package resident

import "time"

// Hearing returns a config whose probes may take this long.
func (c Config) Hearing(d time.Duration) Config {
	c.hear = d
	return c
}
