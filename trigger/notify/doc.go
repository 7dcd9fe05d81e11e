// Package notify wakes a process that listens, with PostgreSQL's NOTIFY: a [queue.Trigger] and a [queue.Alarm]
// for deployments with a resident process, as package resident runs one.
//
// It needs nothing but the ordinary pool, and works behind a transaction-mode pooler: only who listens needs a
// connection of its own. A listening process keeps the database awake for ever. Where the database
// is to sleep, use one of the other triggers.
package notify
