package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	t.Setenv("DOZE_DATABASE_URL", "")
	nowhere := t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string // in what is printed
	}{
		{"no command shows help", nil, 0, "Usage: doze <command>"},
		{"help", []string{"--help"}, 0, "jobs list"},
		{"help of a command", []string{"dev", "--help"}, 0, "--database-url"},
		{"unknown command", []string{"devv"}, 2, "devv"},
		{"unknown flag", []string{"dev", "--adr", "x"}, 2, "--adr"},
		{"missing argument", []string{"jobs", "show"}, 2, "<id>"},
		{"wrong duration", []string{"enqueue", "echo", "--delay", "soon"}, 2, "--delay"},
		{"wrong id", []string{"jobs", "show", "1"}, 1, "want a UUID"},
		{"no database", []string{"jobs", "list", "--data", nowhere}, 1, "start doze dev"},
		{"an address that others reach", []string{"dev", "--addr", "0.0.0.0:8080"}, 1, "want a loopback address"},
		{"an address without a port", []string{"dev", "--addr", "localhost"}, 1, "want host:port"},
		{"wrong schema", []string{"migrate", "--sql", "--schema", "pg_x"}, 1, "schema"},
		{"wrong database URL", []string{"jobs", "list", "--database-url", "postgres://u:hunter2@h:notaport/db"}, 1, "DOZE_DATABASE_URL"},
		{"version", []string{"version", "--json"}, 0, `"schema"`},
		{"a month's cost", []string{"cost", "--jobs", "10000", "--burst", "10"}, 0, "132.4 h"},
		{"a month's cost as JSON", []string{"cost", "--arrivals", "5", "--json"}, 0, `"awake_hours"`},
		{"a cost of less than nothing", []string{"cost", "--seconds=-1"}, 1, "seconds is -1: want 0 or more"},
		{"SQL to run oneself", []string{"migrate", "--sql"}, 0, "CREATE TABLE \"doze\".jobs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, log bytes.Buffer
			code := run(t.Context(), tt.args, &out, &log)
			printed := out.String() + log.String()
			if code != tt.code || !strings.Contains(printed, tt.want) {
				t.Errorf("doze %v: exit code %d, want %d, and %q in\n%s", tt.args, code, tt.code, tt.want, printed)
			}
			if strings.Contains(printed, "hunter2") {
				t.Errorf("doze %v prints a password", tt.args)
			}
		})
	}
}

func TestKeyIsShownOnceWithWhatTheServerNeeds(t *testing.T) {
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"key", "shop"}, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s", code, &log)
	}
	if !strings.Contains(out.String(), "DOZE_AUTH_KEYS") || !strings.Contains(out.String(), "shop:") {
		t.Errorf("printed %s", &out)
	}
}
