// Package resident runs drains for those who do not need the database to sleep: in a process that stays up and
// hears of jobs at once, or once for each tick of a timer. Handlers, tables and promises are the same as
// with a function that a trigger starts.
//
// [Run] listens, with PostgreSQL's LISTEN, on a connection of its own, and drains a queue when
// package trigger/notify wakes it. It keeps the alarms of delayed jobs, retries and schedules in the
// process. It is the only part of Doze that uses a session's features, so that connection must be direct, not
// through a pooler in transaction mode; all else still goes through the ordinary pool. A
// database that somebody listens to is awake for ever.
//
// [Once] drains each queue that has due work and returns: for cron, a CronJob or any other timer. Each call
// wakes the database, so it sleeps only if the timer's period is longer than its suspend time.
package resident
