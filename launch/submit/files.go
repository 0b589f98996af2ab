package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/isthmus-grid/isthmus/launch/stage"
)

// maxFiles bounds the files that a node accepts for one reservation.
const maxFiles = 4096

// File is a file to stage. Its content must not change meanwhile.
type File struct {
	Name     string // relative to the job's folder there, with slashes
	Path     string // here
	Mode     os.FileMode
	Manifest stage.Manifest
}

// Program returns the name by which a command line's program is called on the nodes, and the file
// to stage; nil if the word has no slash: then each node uses its own program, as in a shell.
func Program(word string) (name string, file *File, err error) {
	if !strings.Contains(word, "/") {
		return word, nil, nil
	}
	f, err := describe(word)
	if err != nil {
		return "", nil, fmt.Errorf("program: %w", err)
	}
	if f.Mode&0o100 == 0 {
		return "", nil, fmt.Errorf("program: %w", &fs.PathError{Op: "exec", Path: word, Err: fs.ErrPermission})
	}
	return "./" + f.Name, f, nil
}

// Collect returns the files with these names; for folders, all files below.
func Collect(names []string) ([]File, error) {
	var all []File
	seen := map[string]string{}
	add := func(p string) error {
		f, err := describe(p)
		if err != nil {
			return err
		}
		if other, twice := seen[f.Name]; twice {
			if other == p {
				return nil
			}
			return fmt.Errorf("files %s and %s would both be %s on the hosts", other, p, f.Name)
		}
		seen[f.Name] = p
		if all = append(all, *f); len(all) >= maxFiles {
			return fmt.Errorf("more than %d files", maxFiles-1)
		}
		return nil
	}
	for _, name := range names {
		err := filepath.WalkDir(name, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return add(p)
		})
		if err != nil {
			return nil, fmt.Errorf("input files: %w", err)
		}
	}
	return all, nil
}

// describe reads a file. It has the same name on the hosts if that is below the current
// folder, else the last part of it.
func describe(p string) (*File, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "stage", Path: p, Err: errors.New("is not a regular file")}
	}
	m, err := stage.Describe(f)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	name := filepath.Clean(p)
	if !filepath.IsLocal(name) {
		name = filepath.Base(name)
	}
	return &File{Name: path.Clean(filepath.ToSlash(name)), Path: p, Mode: info.Mode().Perm(), Manifest: m}, nil
}
