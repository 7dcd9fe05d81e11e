// Package queue is the words and the tables that Doze's other packages share: a
// [Job] and its states, one Go method for each SQL statement of its life, and the
// [Trigger] that starts a drain elsewhere. It knows PostgreSQL and nothing above it.
//
//	            insert                 claim                   finish
//	(client) ───────────▶  queued  ───────────▶  running  ─────────────▶  done
//	                        ▲   ▲                  │ │ │
//	                        │   └──────────────────┘ │ └────────────────▶  failed
//	                        │    failed attempt,     │     out of attempts, discarded,
//	                        │    snooze, release     │     or its drains vanished
//	                        └────────────────────────┘
//	                          reap: the lease expired       cancel ─────▶  cancelled
//
// What always holds, and where it is held:
//
//   - Live jobs are rows of jobs, finished ones rows of history; a statement moves a job from
//     one to the other, so it is never in both or neither.
//   - A job is running exactly while it has a token and a lease (CHECK jobs_lease).
//   - Whoever changes a running job names its id, attempts and token, and looks at the rows
//     that come back. Attempts only grow, and the token is fresh for each claim, so
//     a stale holder changes nothing, even after a failover that lost the claim.
//   - Times are the database's. Only durations are sent to it.
//   - The holders of a queue's slots are as many as it has slots, so no burst starts more
//     drains than that at once.
package queue
