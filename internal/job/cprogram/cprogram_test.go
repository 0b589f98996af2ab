package cprogram

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// compiled links a program with libraries of these sonames, which define MPI_Init.
func compiled(t *testing.T, dir string, flags []string, sonames ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler")
	}
	run := func(words ...string) {
		t.Helper()
		if out, err := exec.Command(compiler, words...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
	}
	source := filepath.Join(dir, "mpi.c")
	program := filepath.Join(dir, "program.c")
	for file, text := range map[string]string{source: "int MPI_Init(void) { return 0; }\n", program: "int MPI_Init(void); int main(void) { return MPI_Init(); }\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	words := append([]string{"-o", filepath.Join(dir, "program"), program}, flags...)
	for _, name := range sonames {
		run("-shared", "-fPIC", "-o", filepath.Join(dir, name), "-Wl,-soname,"+name, source)
		words = append(words, "-Wl,--no-as-needed", filepath.Join(dir, name))
	}
	if len(sonames) == 0 {
		words = append(words, source)
	}
	run(words...)
	return filepath.Join(dir, "program")
}

// Which libraries a program needs, and which programs cannot be served.
func TestLibraries(t *testing.T) {
	for name, tc := range map[string]struct {
		flags   []string
		sonames []string
		want    string
		says    string
	}{
		"standard": {nil, []string{"libmpi_abi.so.1"}, "libisthmus.so libmpi_abi.so.1", ""},
		"mpich":    {nil, []string{"libmpich.so.12"}, "libisthmus.so libmpich.so.12", ""},
		"intel":    {nil, []string{"libother.so.1", "libmpi.so.12"}, "libisthmus.so libmpi.so.12", ""},
		"open mpi": {nil, []string{"libmpi.so.40"}, "libisthmus.so libmpi.so.40", ""},
		"fortran":  {nil, []string{"libmpi_mpifh.so.40"}, "libisthmus.so libmpi.so.40 libmpi_mpifh.so.40", ""},
		"abi f":    {nil, []string{"libmpi_abi_fortran.so.1"}, "libisthmus.so libmpi_abi.so.1 libmpi_abi_fortran.so.1", ""},
		"f08":      {nil, []string{"libmpi_usempif08.so.40"}, "libisthmus.so libmpi.so.40 libmpi_mpifh.so.40", ""},
		"c++":      {nil, []string{"libmpi_cxx.so.40", "libmpi.so.40"}, "libisthmus.so libmpi.so.40", ""},
		"mpichf":   {nil, []string{"libmpichfort.so.12"}, "libisthmus.so libmpich.so.12", ""},
		"old":      {nil, []string{"libmpi.so.20"}, "", "linked with libmpi.so.20 of Open MPI before version 4"},
		"none":     {nil, []string{"libother.so.1"}, "", ""},
		"own":      {nil, nil, "", ""}, // its own MPI_Init, but dynamic: whoever wrote it knows
		"static":   {[]string{"-static"}, nil, "", "linked statically"},
		"musl":     {[]string{"-Wl,--dynamic-linker,/lib/ld-musl-x86_64.so.1"}, []string{"libmpi_abi.so.1"}, "", "musl"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Libraries(compiled(t, t.TempDir(), tc.flags, tc.sonames...))
			if strings.Join(got, " ") != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q, %v; want %q, %q", got, err, tc.want, tc.says)
			}
		})
	}
}

// Whatever else may be started needs nothing.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{self}
	for name, text := range map[string]string{"script": "#!/bin/sh\n", "empty": "", "cut": "\x7fELF", "short": "\x7fELF\x02\x01\x01"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, file := range files {
		if got, err := Libraries(file); len(got) > 0 || err != nil {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if _, err := Libraries(filepath.Join(dir, "nothing")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Env, dir)
	if _, err := Folder(); err == nil || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lib", core), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Folder(); got != dir || err != nil {
		t.Error(got, err)
	}
	t.Setenv(Env, "")
	if got, err := Folder(); err == nil {
		t.Error(got) // beside this test's own program there are none
	}
}

func TestWith(t *testing.T) {
	for _, tc := range []struct {
		environ []string
		want    string
	}{
		{nil, "LD_LIBRARY_PATH=x"},
		{[]string{"LD_LIBRARY_PATH="}, "LD_LIBRARY_PATH=x"},
		{[]string{"A=b", "LD_LIBRARY_PATH=/a:/b"}, "LD_LIBRARY_PATH=x:/a:/b"},
		{slices.Repeat([]string{"LD_LIBRARY_PATH=/a", "LD_LIBRARY_PATH=/b"}, 2), "LD_LIBRARY_PATH=x:/b"},
	} {
		if got := With("x", tc.environ); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.environ, got, tc.want)
		}
	}
}
