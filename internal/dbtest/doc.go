// Package dbtest gives this module's tests a real PostgreSQL.
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.Pool(t)
//		schema := dbtest.Schema(t) // a name: migrate it, then use it
//		…
//	}
//
// Each test binary starts its own server at the first use, in about a second,
// with a throwaway data directory that is not safe against crashes and so
// fast. Isolation is by a schema for each test, or by [Database] where the
// database itself is under test.
//
// These environment variables change that:
//
//   - DOZE_TEST_DATABASE_URL: use this server and start none. The role must be
//     allowed to create schemas and databases.
//   - DOZE_TEST_PG: the major version to start, such as "15" or "18"; it is
//     downloaded if it is not installed. Empty: the one that is installed.
//   - DOZE_TEST_KEEP: if "1" and a test failed, the server that was started
//     stays, to be looked at.
//   - DOZE_TEST_PGBOUNCER: if "require", a missing PgBouncer fails a test
//     rather than skipping it.
//
// # Nothing is left over
//
// [Main] stops the server. In case the test binary ends in any other way (a
// panic, a time-out, kill -9), a shell waits on a pipe from it, and when the
// pipe closes it ends the servers and removes their files. The system closes
// the pipe however the process dies, which neither a deferred call nor a signal
// handler can promise. There is no such shell on Windows.
package dbtest
