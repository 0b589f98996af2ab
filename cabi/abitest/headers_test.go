package abitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// header returns the compiler of an installed MPI and the functions that its mpi.h declares. It skips the test where
// there is none.
func header(t *testing.T, name string) (compiler string, declared map[string]bool) {
	t.Helper()
	compiler, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("the header of %s was not compared: %v", name, err)
	}
	declared = map[string]bool{}
	source := written(t, "#include <mpi.h>\n")
	for _, match := range declaration.FindAllStringSubmatch(command(t, compiler, "-E", "-P", source), -1) {
		declared[match[1]] = true
	}
	return compiler, declared
}

// declaration matches that of a function of MPI's in preprocessed C.
var declaration = regexp.MustCompile(`\b(?:int|double|MPI_\w+)\s+(MPIX?_\w+)\s*\(`)

// written returns a C file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.c")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// differs are functions that MPICH 4.0 and Open MPI 4.1 declare otherwise than the standard's ABI does.
var differs = map[string]bool{
	"MPI_Pready_list": true,                         // the array is not const
	"MPI_Psend_init":  true, "MPI_Precv_init": true, // the count is an MPI_Count
}

// The headers of installed libraries declare the table's functions as the table does, according to a C compiler, and what
// MPICH's declares is in the tables.
func TestHeaders(t *testing.T) {
	known := map[string]bool{"MPI_DUP_FN": true} // a macro's name
	for _, f := range api.Functions() {
		known[f.Name] = true
	}
	for _, f := range api.Extras() {
		known[f.Name] = true
	}
	for _, name := range []string{"mpicc.mpich", "mpicc.openmpi"} {
		t.Run(name, func(t *testing.T) {
			compiler, declared := header(t, name)
			text, compared := "#include <mpi.h>\n", 0
			for _, f := range api.Functions() {
				if declared[f.Name] && !differs[f.Name] {
					text += f.Prototype("") + ";\n"
					compared++
				}
			}
			command(t, compiler, "-fsyntax-only", "-Werror", written(t, text))
			if compared < 380 {
				t.Errorf("%d functions were compared", compared)
			}
			for f := range declared {
				if name == "mpicc.mpich" && !known[f] && !strings.HasPrefix(f, "MPI_Status_") { // of which some are Fortran's
					t.Errorf("the tables lack %s", f)
				}
			}
		})
	}
}

// MPICH's constants have the values of its header.
func TestMPICHValues(t *testing.T) {
	compiler, _ := header(t, "mpicc.mpich")
	text := "#include <mpi.h>\n"
	for name, value := range api.MPICH() {
		text += fmt.Sprintf("_Static_assert((long)(%s) == (long)(int)(%s), \"%s\");\n", name, value, name)
	}
	command(t, compiler, "-fsyntax-only", written(t, text))
}

// The variables of MPICH's header are in our library.
func TestMPICHVariables(t *testing.T) {
	compiler, _ := header(t, "mpicc.mpich")
	text := command(t, compiler, "-E", "-P", written(t, "#include <mpi.h>\n"))
	has := definedNames(t)
	found := variable.FindAllStringSubmatch(text, -1)
	for _, match := range found {
		if !has[match[1]] {
			t.Errorf("our library lacks %s", match[1])
		}
	}
	if len(found) < 10 {
		t.Errorf("%d variables", len(found))
	}
}

// variable matches the declaration of a variable of MPI's in preprocessed C.
var variable = regexp.MustCompile(`extern [^;(]*\b(MPI\w+)(?:\[\w*\])?\s*(?:__attribute__[^;]*)?;`)
