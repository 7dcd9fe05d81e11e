package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"text/tabwriter"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/migrations"
)

// output is where a command prints: results on out, logs on log.
type output struct{ out, log io.Writer }

// jsonFlag is on every command that prints results.
type jsonFlag struct {
	JSON bool `help:"Print JSON."`
}

// print prints v as JSON if that was asked for, else what text writes.
func (o *output) print(asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		e := json.NewEncoder(o.out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

type versionCmd struct{ jsonFlag }

// Run prints the version.
func (c *versionCmd) Run(o *output) error {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	v := struct {
		Version string `json:"version"`
		Schema  int    `json:"schema"`
	}{version, migrations.Version}
	return o.print(c.JSON, v, func(w io.Writer) { fmt.Fprintf(w, "doze %s, schema version %d\n", v.Version, v.Schema) })
}

type keyCmd struct {
	jsonFlag
	Name string `arg:"" help:"Who will use the key."`
}

// Run makes a key and prints it once, with what DOZE_AUTH_KEYS needs to know it.
func (c *keyCmd) Run(o *output) error {
	secret, hash := enqueue.NewKey()
	setting := c.Name + ":" + hash
	if _, err := enqueue.ParseKeys(setting); err != nil {
		return err
	}
	v := struct {
		Key     string `json:"key"`
		Setting string `json:"setting"`
	}{secret, setting}
	return o.print(c.JSON, v, func(w io.Writer) {
		fmt.Fprintf(w, "key, shown once:\t%s\nadd to DOZE_AUTH_KEYS:\t%s\n", secret, setting)
	})
}
