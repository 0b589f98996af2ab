// Package abitest compiles C programs against the libraries and runs them as jobs. The libraries have a
// build of all packages of their own, so programs run with the tag system only; without it, the C sources
// are compiled.
package abitest

import (
	"bytes"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/cabi/build"
)

// command runs a program to its end and returns its standard output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, &out, &complaints)
	}
	return out.String()
}

// sources returns the C compiler and a folder with the front-ends' sources and mpi.h. It skips the test
// where there is no C compiler.
func sources(t *testing.T) (compiler, dir string) {
	t.Helper()
	compiler, err := build.Compiler(t.Context())
	if err != nil {
		t.Skipf("C was not tested: %v", err)
	}
	dir = t.TempDir()
	if err := build.Sources(dir); err != nil {
		t.Fatal(err)
	}
	return compiler, dir
}

// The programs that the sweep runs are valid C for our mpi.h.
func TestPrograms(t *testing.T) {
	compiler, dir := sources(t)
	programs, err := filepath.Glob(filepath.Join("testdata", "*.c"))
	if err != nil || len(programs) < 20 {
		t.Fatalf("%v, %v", programs, err)
	}
	command(t, compiler, append([]string{"-std=c99", "-Wall", "-Wextra", "-Werror", "-I" + dir, "-fsyntax-only"}, programs...)...)
}

// All front-ends have all functions of the table, each also with its PMPI name.
func TestSymbols(t *testing.T) {
	compiler, dir := sources(t)
	nm, err := exec.LookPath("nm")
	if err != nil {
		t.Skipf("symbols were not tested: %v", err)
	}
	for source, number := range map[string]int{"standard.c": 664, "mpich.c": 0, "openmpi.c": 415 + 22} { // 0: and those of extra.txt
		object := compiled(t, compiler, dir, source)
		types, functions := map[string]string{}, 0
		output := command(t, nm, "--defined-only", "--extern-only", "--print-size", object)
		for line := range strings.Lines(output) {
			if fields := strings.Fields(line); len(fields) == 4 && (strings.HasPrefix(strings.TrimPrefix(fields[3], "P"), "MPI_") || strings.HasPrefix(strings.TrimPrefix(fields[3], "P"), "MPIX_")) {
				types[fields[3]] = fields[2]
				if fields[2] == "W" {
					functions++
				}
			}
		}
		if number > 0 && functions != number {
			t.Errorf("%s has %d functions that a tool may define too, want %d", source, functions, number)
		}
		if source == "openmpi.c" {
			checkOpenMPI(t, types, output)
			continue
		}
		for _, variable := range []string{"MPI_UNWEIGHTED", "MPI_WEIGHTS_EMPTY", "MPI_F_STATUS_IGNORE", "MPI_F08_STATUSES_IGNORE", "MPI_T_PVAR_ALL_HANDLES"} { // no symbols in the standard's ABI
			if has := types[variable] != ""; has != (source == "mpich.c") {
				t.Errorf("%s has %s: %v", source, variable, has)
			}
		}
		for _, f := range api.Functions() {
			if types[f.Name] != "W" || types["P"+f.Name] != "T" {
				t.Errorf("%s: %s is %q and P%s %q, want a weak and a strong function", source, f.Name, types[f.Name], f.Name, types["P"+f.Name])
			}
		}
	}
}

// compiled compiles a front-end as the library is, and returns the object file.
func compiled(t *testing.T, compiler, dir, source string) string {
	t.Helper()
	object := filepath.Join(dir, source+".o")
	command(t, compiler, "-std=c99", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-c", "-o", object, filepath.Join(dir, source))
	return object
}

// definedNames returns the names that libmpich.so.12 has for programs.
func definedNames(t *testing.T) map[string]bool {
	t.Helper()
	compiler, dir := sources(t)
	object, err := elf.Open(compiled(t, compiler, dir, "mpich.c"))
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	symbols, err := object.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = has[s.Name] || s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL
	}
	return has
}

// Debian's libraries for Fortran and C++, which programs that MPICH's compilers made are linked with, find in our library
// all that they want of MPICH's: such programs may be started with LD_BIND_NOW.
func TestMPICHLibraries(t *testing.T) {
	has := definedNames(t)
	compiler, err := build.Compiler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		least int // how many names it wants
	}{{"libmpichfort.so.12", 800}, {"libmpichcxx.so.12", 200}} {
		t.Run(c.name, func(t *testing.T) {
			path := strings.TrimSpace(command(t, compiler, "-print-file-name="+c.name))
			if path == c.name {
				t.Skipf("%s is not installed", c.name)
			}
			library, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer library.Close()
			wanted, err := library.ImportedSymbols()
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range wanted {
				if !isMPICH.MatchString(s.Name) {
					continue
				}
				if n++; !has[s.Name] {
					t.Errorf("it wants %s, which our library does not have", s.Name)
				}
			}
			if n < c.least {
				t.Errorf("it wants %d names of MPICH's, not %d and more", n, c.least)
			}
		})
	}
}

// isMPICH matches the names of MPICH's library.
var isMPICH = regexp.MustCompile(`^P?MPI[A-Z]*_`)

// The front-ends for Fortran have a routine for each function of their ABI, but for those of the tools interface, by the names that
// compilers give it, and the one that the library, or the module, for mpi_f08 calls.
func TestRoutines(t *testing.T) {
	compiler, dir := sources(t)
	nm, err := exec.LookPath("nm")
	if err != nil {
		t.Skipf("symbols were not tested: %v", err)
	}
	var standard []string
	for _, f := range api.Functions() {
		standard = append(standard, f.Name)
	}
	for _, c := range []struct {
		source, f08 string // as a pattern with the name in it
		functions   []string
		least       int
	}{{"mpifh.c", "o*_f", api.OpenMPI().Functions, 360}, {"abifh.c", "*_f08_", standard, 580}} {
		object := compiled(t, compiler, dir, c.source)
		has := map[string]bool{}
		for line := range strings.Lines(command(t, nm, "--defined-only", "--extern-only", object)) {
			has[strings.Fields(line)[2]] = true
		}
		routines := 0
		for _, name := range c.functions {
			if isOfC.MatchString(name) {
				continue
			}
			routines++
			upper := strings.ToUpper(name)
			name = strings.ToLower(name)
			for _, symbol := range []string{strings.Replace(c.f08, "*", name, 1), name + "_", "p" + name + "_", name + "__", name, upper, "P" + upper} {
				if !has[symbol] {
					t.Errorf("%s: there is no %s", c.source, symbol)
				}
			}
		}
		if routines < c.least {
			t.Errorf("%s: %d routines", c.source, routines)
		}
	}
}

// isOfC matches the functions that Fortran does not have.
var isOfC = regexp.MustCompile(`^MPI_T_|_(c2f|f2c|toint|fromint|c2f08|f082c|f2f08|f082f)$`)

// mpif.h is valid in fixed form, and so are the modules with all the routines that they name: a compiler says that they are
// Fortran, and the library has each.
func TestModules(t *testing.T) {
	compiler, dir := sources(t)
	text, err := os.ReadFile(filepath.Join(dir, "mpif.h"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if len(line) > 72+1 {
			t.Errorf("mpif.h has a line that is too long: %s", line)
		}
	}
	object, err := elf.Open(compiled(t, compiler, dir, "abifh.c"))
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	symbols, err := object.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = true
	}
	modules, err := filepath.Glob(filepath.Join(dir, "*.f90"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		text, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		names := routine.FindAllStringSubmatch(string(text), -1)
		if len(names) < 350 {
			t.Errorf("%s has %d routines", module, len(names))
		}
		for _, name := range names {
			if strings.Contains(name[1], "_function") {
				continue // a form of the program's functions
			}
			if symbol := strings.ToLower(name[1]) + "_"; !has[symbol] {
				t.Errorf("%s: the library has no %s", module, symbol)
			}
		}
	}
	fortran, err := exec.LookPath("gfortran")
	if err != nil {
		t.Skipf("Fortran was not compiled: %v", err)
	}
	command(t, fortran, append([]string{"-Wall", "-Werror", "-Wno-unused-dummy-argument", "-Wno-c-binding-type", "-I" + dir, "-J" + dir, "-fsyntax-only"}, modules...)...)
}

// routine matches a routine that is declared in a module.
var routine = regexp.MustCompile(`(?m)^    subroutine (P?MPI_\w+)`)

// checkOpenMPI checks that the front-end of Open MPI's ABI has the functions of Debian's library, and its data objects in just
// the sizes: a program's copy has those.
func checkOpenMPI(t *testing.T, types map[string]string, symbols string) {
	for _, name := range api.OpenMPI().Functions {
		if types[name] != "W" || types["P"+name] != "T" {
			t.Errorf("%s is %q and P%s %q, want a weak and a strong function", name, types[name], name, types["P"+name])
		}
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(symbols) {
		if fields := strings.Fields(line); len(fields) == 4 && strings.Contains("BD", fields[2]) {
			sizes[fields[3]], _ = strconv.ParseInt(fields[1], 16, 64)
		}
	}
	for _, o := range api.OpenMPI().Objects {
		if sizes[o.Name] != int64(o.Size) {
			t.Errorf("%s has %d bytes, and %d in Open MPI's library", o.Name, sizes[o.Name], o.Size)
		}
		delete(sizes, o.Name)
	}
	if len(sizes) > 0 {
		t.Errorf("Open MPI's library has no %v", slices.Collect(maps.Keys(sizes)))
	}
}

// mpi.h can be compiled as C and as C++ without warnings.
func TestHeader(t *testing.T) {
	_, dir := sources(t)
	for _, c := range [][]string{{"gcc", "-x", "c", "-std=c99"}, {"g++", "-x", "c++", "-std=c++17"}} {
		if _, err := exec.LookPath(c[0]); err != nil {
			t.Logf("not tested with %s: %v", c[0], err)
			continue
		}
		command(t, c[0], append(c[1:], "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"+dir, "-fsyntax-only", "testdata/header.c")...)
	}
}

// What the core shares with PMIx's client library is as in its header.
func TestPMIxLayout(t *testing.T) {
	compiler, _ := sources(t)
	headers, err := filepath.Glob("/usr/lib/*/pmix2/include/pmix_common.h")
	if err != nil || len(headers) == 0 {
		t.Skipf("there is no header of PMIx (Debian: libpmix-dev): %v", err)
	}
	command(t, compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-isystem", filepath.Dir(headers[0]), "-fsyntax-only", "testdata/pmix/layout.c")
}
