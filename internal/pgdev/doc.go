// Package pgdev finds, fetches and runs a PostgreSQL server on this machine,
// for the dev command and for tests. It is not for production.
//
//	bin, err := pgdev.Find(ctx, pgdev.Options{})
//	server, err := pgdev.Start(ctx, pgdev.Config{Binaries: bin, DataDir: dir, Durable: true})
//	defer server.Stop(context.Background())
//	pool, err := pgxpool.New(ctx, server.URL())
//
// # Who runs it
//
// PostgreSQL refuses to run as root. A root process on Unix therefore runs it
// as the owner of an existing data directory, else as the user postgres, else
// as nobody, and gives a new data directory to that user. Any other process
// runs it as itself. On Windows PostgreSQL refuses an administrator; start from
// an ordinary prompt there.
//
// The server listens on 127.0.0.1 only, has no Unix socket and trusts every
// connection, so any user of this machine can be its superuser.
//
// # How it ends
//
// The server is a direct child in a process group of its own: Ctrl-C in the
// terminal reaches the program and not the server, so the program can finish
// with its database still up and then call [Server.Stop].
//
// If the program is killed and cannot call Stop, the server stays. The next
// [Start] on the same data directory stops it and starts a new one. The
// parent-death signal of Linux is not used: it fires when the thread that
// started the child ends, which in Go can be long before the process does.
package pgdev
