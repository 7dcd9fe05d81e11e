package pgdev

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
)

// executable adds the suffix that programs have on this platform.
func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// installed lists the folders where PostgreSQL may be, best first. A folder can
// come twice.
func installed() []string {
	var dirs []string
	if path, err := exec.LookPath(executable("postgres")); err == nil {
		// A link on PATH often stands alone, with initdb only beside its target.
		dirs = append(dirs, filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != filepath.Dir(path) {
			dirs = append([]string{filepath.Dir(real)}, dirs...)
		}
	}
	for _, pattern := range usualPlaces() {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		dirs = append(dirs, newestFirst(found)...)
	}
	return dirs
}

func usualPlaces() []string {
	switch runtime.GOOS {
	case "windows":
		return []string{filepath.Join(cmp.Or(os.Getenv("ProgramFiles"), `C:\Program Files`), "PostgreSQL", "*", "bin")}
	case "darwin":
		return []string{
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
			"/Library/PostgreSQL/*/bin",
		}
	default:
		return []string{
			"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
			"/usr/bin",                  // Fedora, Arch
			"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Fedora and the like
			"/usr/libexec/postgresql*",  // Alpine
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		}
	}
}

// cached lists what fetch left in the cache, newest first.
func cached(cacheDir string) []string {
	found, _ := filepath.Glob(filepath.Join(cacheDir, "*-"+platform(), "bin"))
	return newestFirst(found)
}

var number = regexp.MustCompile(`[0-9]+`)

// newestFirst sorts folders such as /usr/lib/postgresql/15/bin by the first
// number in the name of the folder above bin, so that 9 comes after 18.
func newestFirst(dirs []string) []string {
	major := func(dir string) int {
		name := filepath.Base(dir)
		if name == "bin" {
			name = filepath.Base(filepath.Dir(dir))
		}
		n, _ := strconv.Atoi(number.FindString(name)) // none, such as "latest": last
		return n
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	return dirs
}

// installCommand is what a person types to get PostgreSQL here.
func installCommand(major int) string {
	switch runtime.GOOS {
	case "windows":
		return fmt.Sprintf("winget install PostgreSQL.PostgreSQL.%d", major)
	case "darwin":
		return fmt.Sprintf("brew install postgresql@%d", major)
	}
	for _, manager := range [][2]string{
		{"apt-get", "sudo apt-get install postgresql"},
		{"dnf", "sudo dnf install postgresql-server"},
		{"apk", fmt.Sprintf("sudo apk add postgresql%d", major)},
		{"pacman", "sudo pacman -S postgresql"},
	} {
		if _, err := exec.LookPath(manager[0]); err == nil {
			return manager[1]
		}
	}
	return "see https://www.postgresql.org/download/"
}
