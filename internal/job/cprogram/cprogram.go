// Package cprogram says which MPI library a program in C or Fortran is linked with, and where on this
// host the project's libraries are that serve it. It looks at files only, and keeps no state.
package cprogram

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Env names, in the environment, the folder with lib and include of the libraries for C programs.
const Env = "ISTHMUS_MPI"

// PathVariable is the variable of the dynamic loader with the folders to look for libraries in first
// (ld.so(8)).
const PathVariable = "LD_LIBRARY_PATH"

// core is the library that all others need.
const core = "libisthmus.so"

// served are the names by which programs know the libraries that there are.
var served = []string{"libmpi_abi.so.1", "libmpi_abi_fortran.so.1", "libmpich.so.12", "libmpi.so.12", "libmpi.so.40", "libmpi_mpifh.so.40"}

// above are the libraries of MPICH and Open MPI that a program may be linked with in place of those, as they
// need them: ours for Fortran, and theirs, which run over ours.
var above = map[string][]string{
	"libmpi_abi_fortran.so.1": {"libmpi_abi.so.1"},
	"libmpichfort.so.12":      {"libmpich.so.12"}, "libmpichcxx.so.12": {"libmpich.so.12"},
	"libmpi_mpifh.so.40": {"libmpi.so.40"}, "libmpi_cxx.so.40": {"libmpi.so.40"},
	"libmpi_usempif08.so.40": {"libmpi.so.40", "libmpi_mpifh.so.40"}, "libmpi_usempi_ignore_tkr.so.40": {"libmpi.so.40", "libmpi_mpifh.so.40"},
}

// foreign are those of other MPI libraries, and who makes them.
var foreign = map[string]string{"libmpi.so.20": "Open MPI before version 4", "libmpi.so.1": "an old MPI library"}

// Libraries returns the names of the libraries that have to be beside a program or in the loader's path;
// none for what is no program of this kind, such as a script or one in Go. It fails for one that no
// library here can serve: linked with another MPI library, statically, or with musl, beside which Go's
// runtime cannot be loaded.
func Libraries(file string) ([]string, error) {
	f, err := elf.Open(file)
	var format *elf.FormatError
	switch {
	case errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, nil // no ELF
	case err != nil:
		return nil, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, nil // a file that the loader judges
	}
	for _, name := range needed {
		if maker := foreign[name]; maker != "" {
			return nil, fmt.Errorf("%s is linked with %s of %s, which is not served: compile it with isthmus cc, or with the mpicc of MPICH or Open MPI 4", file, name, maker)
		}
	}
	for _, name := range slices.Clone(needed) {
		needed = append(needed, above[name]...)
	}
	used := slices.DeleteFunc(slices.Clone(served), func(name string) bool { return !slices.Contains(needed, name) })
	if len(used) == 0 {
		return nil, checkStatic(f, file)
	}
	if loader := interpreter(f); strings.Contains(loader, "musl") {
		return nil, fmt.Errorf("%s is linked with musl (%s), and the MPI library needs glibc: compile it on a distribution that has that", file, loader)
	}
	return append([]string{core}, used...), nil
}

// checkStatic returns an error if a program without libraries has MPI in itself.
func checkStatic(f *elf.File, file string) error {
	if interpreter(f) != "" {
		return nil
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil // stripped
	}
	if slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "MPI_Init" && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("%s is linked statically with an MPI library: link it dynamically, with isthmus cc", file)
	}
	return nil
}

// interpreter returns the loader that a program names; "" if it has none.
func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return ""
		}
		return strings.TrimRight(string(text), "\x00")
	}
	return ""
}

// Next says what to do where Folder finds none.
const Next = "apt-get install ./isthmus-mpi_*.deb, or export " + Env + "=FOLDER"

// Folder returns the folder of this host's libraries for C programs: the one in the environment or, where
// a package has put it, ../lib/isthmus/mpi beside this program's.
func Folder() (string, error) {
	folder := os.Getenv(Env)
	if folder == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		folder = filepath.Join(filepath.Dir(self), "..", "lib", "isthmus", "mpi")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "lib", core)); err != nil {
		return "", fmt.Errorf("there is no such library in %s", folder)
	}
	return folder, nil
}

// With returns a value of PathVariable in which a folder comes before those in an environment.
func With(folder string, environ []string) string {
	before := ""
	for _, v := range environ { // the last one counts
		if value, is := strings.CutPrefix(v, PathVariable+"="); is {
			before = value
		}
	}
	if before == "" {
		return PathVariable + "=" + folder
	}
	return PathVariable + "=" + folder + ":" + before
}
