package pgdev

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// unpack extracts an npm archive of an embedded build into dir and restores
// the symbolic links of the libraries, which npm cannot carry: without them
// postgres does not load. Modes are set apart from the umask, so that the user
// the server runs as can read all of it.
func unpack(archive io.Reader, dir string) error {
	root, err := os.OpenRoot(dir) // nothing in the archive can reach outside
	if err != nil {
		return err
	}
	defer root.Close()
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeFile(root, path.Clean(header.Name), files); err != nil {
			return err
		}
	}
	return restoreLinks(root, "package")
}

func writeFile(root *os.Root, name string, content io.Reader) error {
	if err := makeParents(root, name); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.Contains(name, "/native/bin/") {
		mode = 0o755
	}
	local := filepath.FromSlash(name)
	file, err := root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return root.Chmod(local, mode)
}

// makeParents makes the folders above name, open to all.
func makeParents(root *os.Root, name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	if _, err := root.Stat(filepath.FromSlash(dir)); err == nil {
		return nil
	}
	if err := makeParents(root, dir); err != nil {
		return err
	}
	if err := root.Mkdir(filepath.FromSlash(dir), 0o755); err != nil {
		return err
	}
	return root.Chmod(filepath.FromSlash(dir), 0o755)
}

// restoreLinks makes the links that the package lists: target is the link,
// source the file it points at, both relative to the package.
func restoreLinks(root *os.Root, packageDir string) error {
	list, err := root.ReadFile(filepath.Join(packageDir, "native", "pg-symlinks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Windows builds have none
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(list, &links); err != nil {
		return fmt.Errorf("read pg-symlinks.json: %w", err)
	}
	for _, link := range links {
		// Relative, so that the whole installation can be moved.
		to, err := filepath.Rel(path.Dir(link.Target), link.Source)
		if err != nil {
			return fmt.Errorf("link %s: %w", link.Target, err)
		}
		if err := root.Symlink(to, filepath.Join(packageDir, filepath.FromSlash(link.Target))); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", link.Target, err)
		}
	}
	return nil
}
