// Package build makes the libraries that C programs are linked with: the core with the go command,
// the front-ends with a C compiler. It keeps no state.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/frontend"
)

// ErrNoCompiler is the error where there is no C compiler.
var ErrNoCompiler = errors.New("there is no C compiler")

// core is the package of the library that the front-ends share.
const core = "github.com/isthmus-grid/isthmus/cabi/lib"

// A library is a front-end: its source, its soname, other names that programs know it by, and libraries that it needs besides
// the core.
type library struct {
	source, soname string
	names, needs   []string
}

var libraries = []library{
	{"standard.c", "libmpi_abi.so.1", []string{"libmpi_abi.so"}, nil},
	{"mpich.c", "libmpich.so.12", []string{"libmpich.so", "libmpi.so.12"}, nil},
	{"openmpi.c", "libmpi.so.40", nil, nil},
	{"mpifh.c", "libmpi_mpifh.so.40", nil, []string{"libmpi.so.40"}},
	{"abifh.c", "libmpi_abi_fortran.so.1", []string{"libmpi_abi_fortran.so"}, nil},
}

// Compiler returns the C compiler that the go command would use, or ErrNoCompiler.
func Compiler(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return "", fmt.Errorf("cabi/build: go env: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) == 0 {
		return "", ErrNoCompiler
	}
	path, err := exec.LookPath(fields[0])
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	return path, nil
}

// Libraries makes all libraries in dir/lib, and mpi.h, mpif.h and the modules of the standard ABI in dir/include. It is
// called within the module, and fails with ErrNoCompiler where there is none.
func Libraries(ctx context.Context, dir string) error {
	compiler, err := Compiler(ctx)
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	if err := os.MkdirAll(lib, 0o777); err != nil {
		return err
	}
	if err := Sources(filepath.Join(dir, "include")); err != nil {
		return err
	}
	if err := goLibrary(ctx, filepath.Join(lib, "libisthmus.so")); err != nil {
		return err
	}
	for _, l := range libraries {
		if err := l.compile(ctx, compiler, filepath.Join(dir, "include"), lib); err != nil {
			return err
		}
	}
	return nil
}

// Sources writes the sources of the front-ends, mpi.h among them, and mpif.h and the modules in Fortran.
func Sources(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	names, err := fs.Glob(frontend.Files, "*/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := frontend.Files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// goLibrary compiles the core.
func goLibrary(ctx context.Context, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-tags=cabi", "-trimpath", "-ldflags=-s -w -extldflags=-Wl,-soname,libisthmus.so", "-o", out, core)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	return run(cmd)
}

// compile compiles a front-end and makes its other names. It finds the core beside itself. The
// functions for signals are in each front-end: the loader looks for them there before it looks in
// the C library, but in the core after it.
func (l library) compile(ctx context.Context, compiler, sources, lib string) error {
	out := filepath.Join(lib, l.soname)
	args := []string{"-std=c99", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
		"-Wl,-soname," + l.soname, "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", "-o", out, filepath.Join(sources, l.source), filepath.Join(sources, "signals.c"), "-L" + lib, "-l:libisthmus.so"}
	for _, name := range l.needs {
		args = append(args, "-l:"+name)
	}
	if err := run(exec.CommandContext(ctx, compiler, args...)); err != nil {
		return err
	}
	for _, name := range l.names {
		link := filepath.Join(lib, name)
		os.Remove(link)
		if err := os.Symlink(l.soname, link); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command; its error has what it printed.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cabi/build: %v: %w\n%s", cmd, err, out.Bytes())
	}
	return nil
}
