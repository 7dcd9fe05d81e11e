// Package sweeper is the last resort: one pass that takes jobs back from vanished drains, wakes
// every queue that has due work, sets alarms that are missing, and forgets what is old.
//
// It is no loop. A schedule outside calls it, rarely: each sweep wakes the database, so
// a period below the database's suspend time would keep it awake for ever.
package sweeper
