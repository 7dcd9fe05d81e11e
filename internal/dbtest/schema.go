package dbtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Schema returns the name of a schema that no other test uses, made of the
// test's name and a random part: lower-case letters, digits and _, at most 50
// bytes, so that it needs no quotes. It does not create the schema. When the
// test ends the schema is dropped from the maintenance database with all that
// is in it; if the test failed, it is kept and the log says how to look at it.
//
// Take the schema before the pools that use it, so that it is dropped after
// they are closed: an open transaction there would block the drop, which
// gives up after 10 s and fails the test.
func Schema(tb testing.TB) string {
	tb.Helper()
	at := URL(tb)
	name := uniqueName(tb)
	tb.Cleanup(func() {
		if tb.Failed() {
			onFailure(tb, "schema "+name, at)
			return
		}
		if err := run(at, "set lock_timeout = '10s'", "drop schema if exists "+name+" cascade"); err != nil {
			tb.Errorf("dbtest: drop schema %s: %v", name, err)
		}
	})
	return name
}

// Database creates an empty database for this test and returns its connection
// string. When the test ends it is dropped and its connections are cut; if the
// test failed, it is kept and the log says how to look at it. It costs some 50
// times what a schema does.
func Database(tb testing.TB) string {
	tb.Helper()
	at := URL(tb)
	name := uniqueName(tb)
	own, err := withDatabase(at, name)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	// template0: template1 cannot be copied while anybody is connected to it.
	if err := run(at, "create database "+name+" template template0"); err != nil {
		tb.Fatalf("dbtest: create database %s: %v", name, err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			onFailure(tb, "database "+name, own)
			return
		}
		if err := run(at, "drop database if exists "+name+" with (force)"); err != nil {
			tb.Errorf("dbtest: drop database %s: %v", name, err)
		}
	})
	return own
}

// run executes statements one by one on a connection of its own. It has its
// own time limit: a test's context is over when its clean-ups run.
func run(databaseURL string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func uniqueName(tb testing.TB) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(tb.Name()))
	return fmt.Sprintf("t_%.39s_%s", plain, hex.EncodeToString(random[:]))
}
