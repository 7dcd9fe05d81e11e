// Package enqueue puts jobs in: from Go with a [Client], inside your own transaction
// or not, and over HTTP with [Routes].
//
// A kind of job is a Go type:
//
//	type Welcome struct {
//		To string `json:"to"`
//	}
//
//	func (Welcome) Kind() string { return "welcome" }
//
// [Client.Add] stores one job and wakes its queue. [Client.InTx] stores jobs together with
// your own rows: both are committed or neither is, and the queue is woken after the
// commit. With a transaction of your own use [Client.AddTx], and [Client.Fire] once
// it is committed.
//
// A queue is woken by a ring, which decides in the database whether anybody must be
// asked to come, and by the trigger, which asks. The job is safe once it is
// committed; a trigger that fails delays it until the next enqueue, alarm or sweep.
//
// What may come back:
//
//	situation                                       error                        next step
//	a field is wrong; nothing was sent              *queue.FieldError            correct it
//	the payload is too long                         the same, and ErrTooLarge    store it elsewhere, enqueue a reference
//	the database was out of reach; nothing stored   as pgx gives it              enqueue again
//	the answer to a commit was lost                 *OutcomeError                enqueue again with its ids
//	the queue could not be woken                    none, but Stats and the log  see to the trigger
package enqueue
