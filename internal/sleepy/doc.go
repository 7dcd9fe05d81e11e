// Package sleepy is a Postgres that suspends when it is idle, as those of a serverless platform do: a
// proxy that starts a real server at the first connection, and stops it when the platform's
// rule says that nobody uses it. It is for doze dev and for tests of what wakes a database and
// what keeps it awake.
//
// It tells from the protocol's messages whether a session is idle, so no statement of its own ever
// runs in the database.
package sleepy
