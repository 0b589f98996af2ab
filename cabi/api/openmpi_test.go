package api

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write openmpi.tsv anew, from the installed Open MPI 4.1")

// The data about Open MPI's ABI is what its header and library of version 4.1 have, where these are installed.
func TestOpenMPIHeader(t *testing.T) {
	mpicc, err := exec.LookPath("mpicc.openmpi")
	if err != nil {
		t.Skipf("the data about Open MPI was not compared with its own header: %v", err)
	}
	lines := slices.Concat(openMPIConstants(t, mpicc), openMPIFortran(t, mpicc), openMPISymbols(t, mpicc))
	text := "# Open MPI's ABI (version 4.1, libmpi.so.40): constants with their values; handles with the data objects whose addresses they\n" +
		"# are, and with their numbers in Fortran; data objects with their sizes; functions; and entries for Fortran.\n" +
		"# Written by go test ./cabi/api -run TestOpenMPIHeader -update.\n" + strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("openmpi.tsv", []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if ours, err := os.ReadFile("openmpi.tsv"); err != nil || string(ours) != text {
		t.Errorf("openmpi.tsv is not what the header and the library have, %v: run with -update and compare", err)
	}
}

// Handles are addresses of objects that there are, with room for what identifies them; functions are the table's, or older.
func TestOpenMPI(t *testing.T) {
	data := OpenMPI()
	sizes := map[string]int{}
	for _, o := range data.Objects {
		sizes[o.Name] = o.Size
	}
	handles := 0
	for _, c := range Constants() {
		value := data.Values[c.Name]
		if _, isNumber := strconv.Atoi(value); value == "" || isNumber == nil {
			continue
		}
		handles++
		if sizes[value] < 256 {
			t.Errorf("%s is the address of %s, which has %d bytes", c.Name, value, sizes[value])
		}
		if _, ok := data.Fortran[c.Name]; !ok {
			t.Errorf("%s has no number in Fortran", c.Name)
		}
	}
	if handles < 90 || len(data.Objects) < 200 {
		t.Errorf("%d handles, %d objects", handles, len(data.Objects))
	}
	ours := map[string]bool{}
	for _, f := range Functions() {
		ours[f.Name] = true
	}
	isOurs := 0
	for _, name := range data.Functions {
		if ours[name] {
			isOurs++
		}
	}
	if len(data.Functions) != 415+22 || isOurs != 383 { // 22 are called MPIX_
		t.Errorf("%d functions, of which the table has %d", len(data.Functions), isOurs)
	}
}

// output runs a program to its end.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}

var object = regexp.MustCompile(`& ?\(?(\w+)`)

// openMPIConstants lists what the header has for the standard's constants: handles, by the objects that the preprocessor's
// result names, and numbers, which a program prints.
func openMPIConstants(t *testing.T, mpicc string) []string {
	source := filepath.Join(t.TempDir(), "constants.c")
	compile := func(text string, args ...string) string {
		t.Helper()
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return output(t, mpicc, append(args, source)...)
	}
	header := compile("#include <mpi.h>\n", "-E", "-dD")
	var names []string
	for _, c := range Constants() {
		if !strings.HasPrefix(c.Type, "C ") && !strings.HasSuffix(c.Name, "_FN") && regexp.MustCompile(`\b`+c.Name+`\b`).MatchString(header) {
			names = append(names, c.Name)
		}
	}
	var lines []string
	var program strings.Builder
	expanded := compile("#include <mpi.h>\n@ "+strings.Join(names, "\n@ ")+"\n", "-E", "-P")
	i := 0
	for line := range strings.Lines(expanded) {
		if !strings.HasPrefix(line, "@") {
			continue
		}
		if found := object.FindStringSubmatch(line); found != nil {
			lines = append(lines, "handle\t"+names[i]+"\t"+found[1])
		} else {
			fmt.Fprintf(&program, "printf(\"constant\\t%s\\t%%lld\\n\", (long long)(%s));\n", names[i], names[i])
		}
		i++
	}
	if i != len(names) || i < 200 {
		t.Fatalf("the preprocessor says something about %d of %d constants", i, len(names))
	}
	binary := filepath.Join(t.TempDir(), "constants")
	compile("#include <mpi.h>\n#include <stdio.h>\nint main(void) {\n"+program.String()+"return 0; }\n", "-o", binary)
	return append(strings.Split(strings.TrimSpace(output(t, binary)), "\n"), lines...)
}

var parameter = regexp.MustCompile(`(?i)parameter *\( *(MPI_\w+) *= *(\d+) *\)`)

// openMPIFortran lists the numbers that handles have in Fortran.
func openMPIFortran(t *testing.T, mpicc string) []string {
	var lines []string
	for _, file := range []string{"mpif-handles.h", "mpif-io-handles.h"} {
		text, err := os.ReadFile(filepath.Join(strings.Fields(output(t, mpicc, "-showme:incdirs"))[0], file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range parameter.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, "fortran\t"+found[1]+"\t"+found[2])
		}
	}
	return lines
}

// openMPIObject are the data objects that programs, or the other libraries of Open MPI, have to do with.
var openMPIObject = regexp.MustCompile(`^(ompi_mpi_\w+|ompi_(request|message)_n\w+|MPI_F_\w+|mpi_fortran_\w+|ompi_status_empty|ompi_err(codes_intern|code_intern_lastused)|ompi_registered_datareps)$`)

// openMPISymbols lists data objects and functions of the library.
func openMPISymbols(t *testing.T, mpicc string) []string {
	library, err := elf.Open(filepath.Join(strings.Fields(output(t, mpicc, "-showme:libdirs"))[0], "libmpi.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	var objects, functions []string
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF:
		case elf.ST_TYPE(s.Info) == elf.STT_OBJECT && openMPIObject.MatchString(s.Name) && !strings.HasSuffix(s.Name, "_t_class"):
			objects = append(objects, fmt.Sprintf("object\t%s\t%d", s.Name, s.Size))
		case elf.ST_TYPE(s.Info) == elf.STT_FUNC && (strings.HasPrefix(s.Name, "MPI_") || strings.HasPrefix(s.Name, "MPIX_")):
			functions = append(functions, map[bool]string{true: "function\t", false: "entry\t"}[has["P"+s.Name]]+s.Name)
		}
	}
	slices.Sort(objects)
	slices.Sort(functions)
	return append(objects, functions...)
}
