package pgdev

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config says how [Start] runs a server.
type Config struct {
	// Binaries to run, from Find. The zero value: what Find gives by default,
	// of the major version of DataDir if that has one.
	Binaries Binaries
	// DataDir holds the databases. Required. A missing or empty folder gets a
	// new cluster (superuser postgres, UTF8, locale C). It must be used by
	// this package alone: a server that it finds running there, left by a
	// process that was killed, is stopped. A file beside it, named DataDir
	// with ".lock" added, keeps two processes from using it at once.
	DataDir string
	// Port on 127.0.0.1. 0: a free one is chosen at each start.
	Port int
	// Durable keeps committed data through any crash. False: fsync,
	// synchronous_commit and full_page_writes are off, which is faster and for
	// tests. Then a crash of PostgreSQL or a Kill loses the commits of the last
	// half second or so (not with Settings {"synchronous_commit": "on"}), and
	// a power cut can leave DataDir unusable.
	Durable bool
	// Settings are added to the server's, such as {"max_connections": "300"},
	// and win over those of this package. Those that [Server.URL] depends on
	// (port, listen_addresses, data_directory, cluster_name) are refused.
	Settings map[string]string
	// LogFile gets the server's log, appended. Empty: server.log in DataDir.
	// A log that has grown over 16 MB is emptied at the next start.
	LogFile string
	// Logger is told of starts, stops and clean-ups. Nil: silent.
	Logger *slog.Logger
}

// resolve checks a Config and fills in what was left empty.
func (c Config) resolve(ctx context.Context) (Config, error) {
	if c.DataDir == "" {
		return c, fmt.Errorf("DataDir is empty; want the folder for the databases")
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("Port %d: want 0 (a free one) to 65535", c.Port)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		switch strings.ToLower(name) {
		case "port", "listen_addresses", "data_directory", "cluster_name":
			return c, fmt.Errorf("Settings[%q]: it is set by this package; use Config.Port or Config.DataDir", name)
		}
		if name == "" || strings.ContainsAny(name, "= \t\n") {
			return c, fmt.Errorf("Settings[%q]: want the name of a PostgreSQL setting", name)
		}
	}
	c.Logger = orSilent(c.Logger)
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return c, fmt.Errorf("DataDir %q: %w", c.DataDir, err)
	}
	major, err := DataMajor(c.DataDir)
	if err != nil {
		return c, err
	}
	if c.Binaries == (Binaries{}) {
		opts := Options{Logger: c.Logger}
		if major != 0 {
			opts.Version = strconv.Itoa(major)
		}
		if c.Binaries, err = Find(ctx, opts); err != nil {
			return c, err
		}
	}
	if major != 0 && major != c.Binaries.Major {
		return c, fmt.Errorf("DataDir %q: it was made by PostgreSQL %d, and the binaries in %s are %s; use version %d, or remove the folder if its data is not needed",
			c.DataDir, major, c.Binaries.Dir, c.Binaries.Version, major)
	}
	if c.LogFile == "" {
		c.LogFile = filepath.Join(c.DataDir, "server.log")
	}
	return c, nil
}

// arguments of the postgres program.
func (c Config) arguments(port int) []string {
	args := []string{"-D", c.DataDir}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("cluster_name", clusterName)
	set("listen_addresses", "127.0.0.1")
	set("port", strconv.Itoa(port))
	set("unix_socket_directories", "")
	set("logging_collector", "off") // the log is this process's to open
	if !c.Durable {
		set("fsync", "off")
		set("synchronous_commit", "off")
		set("full_page_writes", "off")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		set(name, c.Settings[name]) // the last one counts
	}
	return args
}
