// Command generate writes what follows from the table of functions (package api) and from which
// of them package core has: the standard ABI's mpi.h, the front-ends in C, and the exports of the
// core. It is run by go generate.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

//go:generate go run .

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "cabi/generate:", err)
		os.Exit(1)
	}
}

// run writes all files below the folder of the ABI's packages.
func run(root string) error {
	core := filepath.Join(root, "core")
	described, err := functions(core, returnsDescription)
	if err != nil {
		return err
	}
	isExported := func(f *ast.FuncDecl) bool { return f.Name.IsExported() }
	written, err := functions(core, isExported)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(core, "forms.go"), otherForms(api.Functions(), described, written), 0o666); err != nil {
		return err
	}
	goNames, err := functions(core, isExported)
	if err != nil {
		return err
	}
	tools, err := functions(filepath.Join(root, "tools"), func(f *ast.FuncDecl) bool { return f.Name.IsExported() })
	if err != nil {
		return err
	}
	for name := range tools {
		goNames[toolsPrefix+name] = true
	}
	s, err := newSurface(api.Functions(), goNames)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write func(*bytes.Buffer, *surface)
	}{
		{"frontend/c/mpi.h", writeHeader},
		{"frontend/c/core.h", writeCore},
		{"frontend/c/standard.c", writeStandard},
		{"frontend/c/mpich.h", writeMPICHHeader},
		{"frontend/c/mpich.c", mpich.write},
		{"frontend/c/openmpi.h", writeOpenMPIHeader},
		{"frontend/c/openmpi.c", openMPI.write},
		{"frontend/c/mpifh.h", writeFortranHeader},
		{"frontend/c/mpifh.c", writeFortran},
		{"frontend/c/abifh.h", writeStandardFortranHeader},
		{"frontend/c/abifh.c", writeStandardFortran},
		{"frontend/fortran/mpif.h", writeInclude},
		{"frontend/fortran/mpi.f90", writeModule},
		{"frontend/fortran/mpi_f08.f90", writeModule08},
		{"lib/exports.go", writeExports},
	} {
		var out bytes.Buffer
		f.write(&out, s)
		if err := os.WriteFile(filepath.Join(root, f.name), out.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// functions returns those functions of a package that are wanted.
func functions(dir string, isWanted func(*ast.FuncDecl) bool) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isWanted(f) {
				names[f.Name.Name] = true
			}
		}
	}
	return names, nil
}
