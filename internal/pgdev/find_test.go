package pgdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dozequeue/doze/internal/pgdev"
)

func TestFind(t *testing.T) {
	t.Parallel()
	bin, err := pgdev.Find(testContext(t), pgdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if bin.Major < pgdev.OldestMajor || !strings.HasPrefix(bin.Version, strconv.Itoa(bin.Major)) {
		t.Errorf("found %+v", bin)
	}
	if _, err := os.Stat(bin.Path("initdb")); err != nil {
		t.Error(err)
	}
	again, err := pgdev.Find(testContext(t), pgdev.Options{BinDir: bin.Dir, Version: strconv.Itoa(bin.Major)})
	if err != nil || again != bin {
		t.Errorf("in BinDir: %+v, %v; want %+v", again, err, bin)
	}
}

func TestFind_Errors(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for name, test := range map[string]struct {
		opts pgdev.Options
		want []string
	}{
		"unknown folder": {pgdev.Options{BinDir: filepath.Join(empty, "none")}, []string{"BinDir", "none", "initdb"}},
		"empty folder":   {pgdev.Options{BinDir: empty}, []string{"BinDir", empty}},
		"old version":    {pgdev.Options{Version: "13"}, []string{`Version "13"`, "too old", "14"}},
		"not a major":    {pgdev.Options{Version: "18.4"}, []string{`Version "18.4"`, "major"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pgdev.Find(testContext(t), test.opts)
			wantError(t, err, test.want...)
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		_, err := pgdev.Find(testContext(t), pgdev.Options{Version: "99", CacheDir: empty, NoFetch: true})
		if !errors.Is(err, pgdev.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		wantError(t, err, "major 99", "install")
	})
}

func TestFind_FakePrograms(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the fakes are shell scripts")
	}
	for name, test := range map[string]struct {
		answer, version string
		want            []string
	}{
		"too old":      {"postgres (PostgreSQL) 9.6.24", "", []string{"9.6.24", "too old", "14"}},
		"other major":  {"postgres (PostgreSQL) 17.2 (Debian 17.2-1)", "18", []string{"17.2", "major 18"}},
		"not Postgres": {"hello", "", []string{`answer "hello"`}},
		"beta":         {"postgres (PostgreSQL) 19beta1", "19", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, program := range []string{"postgres", "initdb", "pg_ctl"} {
				script := "#!/bin/sh\necho '" + test.answer + "'\n"
				if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			_, err := pgdev.Find(testContext(t), pgdev.Options{BinDir: dir, Version: test.version})
			wantError(t, err, test.want...)
		})
	}
}

// Two fetches at once end with the same installation, and it runs.
func TestFind_Fetch(t *testing.T) {
	t.Parallel()
	if os.Getenv("DOZE_TEST_PG_FETCH") != "1" {
		t.Skip("downloads 24 MB; set DOZE_TEST_PG_FETCH=1 to run it")
	}
	cache := openDir(t)
	const major = pgdev.DefaultMajor
	var both sync.WaitGroup
	var found [2]pgdev.Binaries
	var failed [2]error
	for i := range found {
		both.Go(func() {
			found[i], failed[i] = pgdev.Fetch(testContext(t), major, pgdev.Options{CacheDir: cache})
		})
	}
	both.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		t.Fatal(err)
	}
	if found[0] != found[1] || found[0].Major != major {
		t.Errorf("fetched %+v and %+v, want the same of major %d", found[0], found[1], major)
	}
	left, _ := os.ReadDir(cache)
	if len(left) != 1 {
		t.Errorf("the cache holds %v, want one installation", left)
	}
	server := start(t, pgdev.Config{Binaries: found[0], DataDir: dataDir(t)})
	if got := one(t, server.URL(), "show server_version"); got != found[0].Version {
		t.Errorf("the server is %s, want %s", got, found[0].Version)
	}
}

// wantError checks that an error says all of the words; none: that there is none.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	if err == nil {
		t.Errorf("got no error, want one with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}
