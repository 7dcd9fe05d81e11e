//go:build unix

package pgdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that PostgreSQL runs as. The zero value is the user of
// this process.
type account struct {
	drop     bool
	name     string
	uid, gid uint32
}

func isRoot() bool { return os.Geteuid() == 0 }

// ordinary is the account for new folders.
func ordinary() (account, error) {
	if !isRoot() {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return account{drop: true, name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and this machine has no user postgres or nobody; run as an ordinary user")
}

// ownerOf is the account for an existing data directory: its owner, so that
// one run as root does not take it from the person who made it.
func ownerOf(dir string) (account, error) {
	if !isRoot() {
		return account{}, nil
	}
	if info, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			who := account{drop: true, name: strconv.FormatUint(uint64(stat.Uid), 10), uid: stat.Uid, gid: stat.Gid}
			if found, err := user.LookupId(who.name); err == nil {
				who.name = found.Username
			}
			return who, nil
		}
	}
	return ordinary()
}

// run makes cmd run as this account.
func (a account) run(cmd *exec.Cmd) {
	if !a.drop {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Groups stays empty and is set: no group of root's remains.
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// own gives dir and all in it to this account, unless it has it already.
func (a account) own(dir string) error {
	if !a.drop {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == a.uid {
		return nil
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.uid), int(a.gid))
	})
	if err != nil {
		return fmt.Errorf("give %s to user %s: %w", dir, a.name, err)
	}
	return nil
}

// mustReach checks that this account may enter dir and every folder above it.
// The operating system's own message would only say "permission denied".
func (a account) mustReach(what, dir string) error {
	if !a.drop {
		return nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for blocked := real; ; blocked = filepath.Dir(blocked) {
		info, err := os.Stat(blocked)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		enter := fs.FileMode(0o001)
		switch {
		case stat.Uid == a.uid:
			enter = 0o100
		case stat.Gid == a.gid:
			enter = 0o010
		}
		if info.Mode().Perm()&enter == 0 {
			return unreachable(a.name, what, dir, blocked)
		}
		if blocked == filepath.Dir(blocked) {
			return nil
		}
	}
}

// Reachable reports whether the user that PostgreSQL will run as can enter dir, which must exist. Only
// root's own folders, and what lies in them, are out of reach, since root's servers run as
// another user.
func Reachable(dir string) bool {
	a, err := ordinary()
	return err == nil && a.mustReach("folder", dir) == nil
}
