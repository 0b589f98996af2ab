package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeCompiler returns a folder with sources of modules, and a compiler that says a version, and writes a line into the file calls for
// each compilation.
func fakeCompiler(t *testing.T) (include, compiler, calls string) {
	t.Helper()
	include, calls = t.TempDir(), filepath.Join(t.TempDir(), "calls")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CALLS", calls)
	compiler = filepath.Join(t.TempDir(), "fortran")
	for path, text := range map[string]string{
		filepath.Join(include, "mpif.h"):      "!\n",
		filepath.Join(include, "mpi.f90"):     "module mpi\nend module\n",
		filepath.Join(include, "mpi_f08.f90"): "module mpi_f08\nend module\n",
		compiler: "#!/bin/sh\ncase \"$*\" in *--version) echo version $VERSION; exit; esac\n" +
			"echo \"$@\" >>\"$CALLS\"\n[ -z \"$FAILS\" ] || { echo bad module; exit 1; }\ntouch mpi.mod\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return include, compiler, calls
}

// Modules are compiled once for each version of a compiler, and again where they have changed.
func TestModulesCompileOnce(t *testing.T) {
	include, compiler, calls := fakeCompiler(t)
	compile := func() modules {
		t.Helper()
		m, err := modulesOf([]string{compiler, "-m64"}, include)
		if err == nil {
			err = m.compile(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(m.folder, "mpi.mod")); err != nil {
			t.Error(err)
		}
		return m
	}
	first := compile()
	if again := compile(); again.folder != first.folder {
		t.Errorf("%s and %s for the same compiler", first.folder, again.folder)
	}
	t.Setenv("VERSION", "2")
	second := compile()
	if err := os.WriteFile(filepath.Join(include, "mpif.h"), []byte("! changed\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if third := compile(); first.folder == second.folder || second.folder == third.folder {
		t.Errorf("the same folder for two versions: %s, %s, %s", first.folder, second.folder, third.folder)
	}
	text, err := os.ReadFile(calls)
	want := "-m64 -fPIC -I" + include + " -c " + filepath.Join(include, "mpi.f90") + " " + filepath.Join(include, "mpi_f08.f90") + "\n"
	if err != nil || string(text) != strings.Repeat(want, 3) {
		t.Errorf("%v: %s, want three times %s", err, text, want)
	}
	all := first.with([]string{"-o", "program", "program.f90"})
	if got := strings.Join(all, " "); got != "-I"+first.folder+" -o program program.f90 "+filepath.Join(first.folder, "mpi.o")+" "+filepath.Join(first.folder, "mpi_f08.o") {
		t.Error(got)
	}
	if got := strings.Join(first.with([]string{"-c", "program.f90"}), " "); got != "-I"+first.folder+" -c program.f90" {
		t.Error(got)
	}
}

// A compiler that cannot compile them leaves nothing behind, and says why.
func TestModulesFail(t *testing.T) {
	include, compiler, _ := fakeCompiler(t)
	t.Setenv("FAILS", "1")
	m, err := modulesOf([]string{compiler}, include)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.compile(t.Context()); err == nil || !strings.Contains(err.Error(), "bad module") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(m.folder)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
