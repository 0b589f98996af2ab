package compile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modules are Fortran's modules as a compiler has compiled them: no other one can read them.
type modules struct {
	compiler []string // with arguments
	include  string   // the folder with their sources
	sources  []string // in the order in which they are compiled
	folder   string   // where they are, or will be
}

// modulesOf returns where the modules are that a compiler has made, or would: a folder of the user's cache for each
// compiler, version and sources.
func modulesOf(compiler []string, include string) (modules, error) {
	m := modules{compiler: compiler, include: include}
	cache, err := os.UserCacheDir()
	if err != nil {
		return m, fmt.Errorf("no folder for the compiled modules: %w", err)
	}
	if m.sources, err = filepath.Glob(filepath.Join(include, "mpi*.f90")); err != nil {
		return m, err
	}
	version, err := exec.Command(compiler[0], append(slices.Clone(compiler[1:]), "--version")...).Output()
	if err != nil {
		return m, fmt.Errorf("%s --version: %w", strings.Join(compiler, " "), err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %s", compiler, version)
	for _, name := range append([]string{filepath.Join(include, "mpif.h")}, m.sources...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return m, fmt.Errorf("the package isthmus-mpi is not complete: %w", err)
		}
		hash.Write(text)
	}
	m.folder = filepath.Join(cache, "isthmus", "fortran", fmt.Sprintf("%x", hash.Sum(nil)[:8]))
	return m, nil
}

// compile compiles the modules unless that is done. Of several that do it at once, one's are kept.
func (m modules) compile(ctx context.Context) error {
	if _, err := os.Stat(m.folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.folder), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(m.folder), "new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // nothing if it has been renamed
	arguments := append(slices.Clone(m.compiler[1:]), "-fPIC", "-I"+m.include, "-c")
	cmd := exec.CommandContext(ctx, m.compiler[0], append(arguments, m.sources...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot compile the modules: %w\n%s", m.compiler[0], err, out)
	}
	if err := os.Rename(dir, m.folder); err != nil {
		if _, other := os.Stat(m.folder); other != nil {
			return err
		}
	}
	return nil
}

// with returns a compiler's arguments with those that find the modules, and what these need when a program is linked.
func (m modules) with(words []string) []string {
	all := append([]string{"-I" + m.folder}, words...)
	if !isLinked(words) {
		return all
	}
	for _, source := range m.sources {
		all = append(all, filepath.Join(m.folder, strings.TrimSuffix(filepath.Base(source), ".f90")+".o"))
	}
	return all
}
