// Package contexts keeps, for each grid that an admin works with, a broker's address, the admin's
// certificate and its key, so that commands need not be told them each time. It opens no connection
// and prints nothing.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// A Context is what commands need to reach a grid. Its files are copies.
type Context struct {
	Name   string
	Broker string // HOST:PORT
	Files  ca.Files
}

// ErrNone means that there is no context, or none is selected.
var ErrNone = errors.New("no grid is selected")

// The files of a context, in a folder of its name, and the one that holds the selected name.
const (
	certFile    = "admin.pem"
	keyFile     = "admin.key"
	brokerFile  = "broker"
	currentFile = "current"
)

var names = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// Root returns the folder of the calling user's contexts.
func Root() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "isthmus", "contexts"), nil
}

func checkName(name string) error {
	if !names.MatchString(name) || name == currentFile {
		return fmt.Errorf("context %q: want a name of letters, digits, and . _ - in between", name)
	}
	return nil
}

func at(root, name string) Context {
	dir := filepath.Join(root, name)
	return Context{Name: name, Files: ca.Files{
		Cert: filepath.Join(dir, certFile), Key: filepath.Join(dir, keyFile), CA: filepath.Join(dir, ca.CertFile),
	}}
}

// Save copies files into the context of a name, which replaces one of that name, and selects it.
func Save(root, name, broker string, files ca.Files) (Context, error) {
	if err := checkName(name); err != nil {
		return Context{}, err
	}
	c := at(root, name)
	c.Broker = broker
	if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
		return Context{}, err
	}
	for _, f := range []struct{ from, to string }{{files.CA, c.Files.CA}, {files.Key, c.Files.Key}, {files.Cert, c.Files.Cert}} {
		text, err := os.ReadFile(f.from)
		if err == nil {
			err = control.WriteFile(f.to, text, 0o600)
		}
		if err != nil {
			return Context{}, err
		}
	}
	if err := control.WriteFile(filepath.Join(root, name, brokerFile), []byte(broker+"\n"), 0o600); err != nil {
		return Context{}, err
	}
	return c, Select(root, name)
}

// Load returns the context of a name, or, without one, the selected context. The error of one that is
// not there matches ErrNone.
func Load(root, name string) (Context, error) {
	if name == "" {
		var err error
		if name, err = Selected(root); err != nil {
			return Context{}, err
		}
	}
	if err := checkName(name); err != nil {
		return Context{}, err
	}
	text, err := os.ReadFile(filepath.Join(root, name, brokerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Context{}, fmt.Errorf("context %s: %w by that name; isthmus context lists those that there are", name, ErrNone)
	}
	c := at(root, name)
	c.Broker = strings.TrimSpace(string(text))
	return c, err
}

// Selected returns the name of the selected context; ErrNone if there is none.
func Selected(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, currentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNone
	}
	return strings.TrimSpace(string(text)), err
}

// Select makes the context of a name the one that commands use.
func Select(root, name string) error {
	if _, err := Load(root, name); err != nil {
		return err
	}
	return control.WriteFile(filepath.Join(root, currentFile), []byte(name+"\n"), 0o600)
}

// List returns all contexts by name.
func List(root string) (all []Context, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if c, err := Load(root, e.Name()); e.IsDir() && err == nil {
			all = append(all, c)
		}
	}
	return all, err
}

// Remove deletes a context, with its copy of the key. If it was selected, none is afterwards.
func Remove(root, name string) error {
	c, err := Load(root, name)
	if err != nil {
		return err
	}
	if selected, err := Selected(root); err == nil && selected == c.Name {
		if err := os.Remove(filepath.Join(root, currentFile)); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(root, c.Name))
}
