// Package node installs the rivals that are written in JavaScript, and the scripts that run them.
package node

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed package.json *.mjs
var scripts embed.FS

// Missing is why they cannot run here.
type Missing struct{ Why string }

func (m *Missing) Error() string { return m.Why }

// Modules installs the scripts and what they need into a cache folder, once for each version of them, and returns it.
var Modules = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", &Missing{tool + " is not installed"}
		}
	}
	want, err := scripts.ReadFile("package.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(want)
	dir := filepath.Join(cache, "doze-bench", hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files, err := fs.Glob(scripts, "*")
	if err != nil {
		return "", err
	}
	for _, name := range files {
		text, err := scripts.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return dir, nil
	}
	npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", &Missing{fmt.Sprintf("npm install: %v: %s", err, bytes.TrimSpace(out))}
	}
	return dir, os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644)
})

// Version of a module that is installed in the folder, with its name.
func Version(dir, module string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "node_modules", module, "package.json"))
	var p struct{ Version string }
	_ = json.Unmarshal(text, &p)
	return module + " " + p.Version
}
