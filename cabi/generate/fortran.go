package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// fortranMPI is the front-end that Fortran programs of Open MPI's ABI call: it has the constants of C, but handles are
// numbers, and all arguments are addresses.
var fortranMPI = foreign{library: "libmpi_mpifh.so.40", name: "Open MPI's ABI in Fortran", prefix: "mpifh", statuses: "openmpi_values.h",
	values: openMPIData.Values, handle: writeFortranHandle}

// writeFortranHeader writes the types. Statuses are arrays of integers there, and aligned like these.
func writeFortranHeader(out *bytes.Buffer, _ *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The types of Open MPI's ABI in Fortran. */\n\n#include <stddef.h>\n#include <stdint.h>\n\n", marker)
	writeOpenMPITypes(out, "int ", "__attribute__((packed, aligned(4))) ")
}

// writeFortranHandle writes the two functions that translate the handles of a base.
func writeFortranHandle(out *bytes.Buffer, base string, _ []pair) {
	writeSwitches(out, base, base, "uintptr_t", pairs(openMPIData.Fortran, base), "(uintptr_t)value", "(int)value")
}

// written are the routines that mpifh_names.h has: their arguments are not those of C, or they return a value.
var written = []string{"MPI_Init", "MPI_Init_thread", "MPI_Initialized", "MPI_Finalized", "MPI_Wtime", "MPI_Wtick", "MPI_Aint_add", "MPI_Aint_diff", "MPI_Buffer_detach",
	"MPI_Comm_create_keyval", "MPI_Type_create_keyval", "MPI_Keyval_create", "MPI_Comm_get_attr", "MPI_Type_get_attr", "MPI_Attr_get",
	"MPI_Comm_set_attr", "MPI_Type_set_attr", "MPI_Attr_put"}

// unwritten are functions whose functions of the program's, or texts, have another form in Fortran, which mpifh_names.h does not
// have yet: stubs, also where the core has the function.
var unwritten = []string{"MPI_Grequest_start", "MPI_Register_datarep", "MPI_Win_create_keyval", "MPI_Win_get_attr", "MPI_Win_set_attr", "MPI_Comm_spawn", "MPI_Comm_spawn_multiple"}

// pointers are routines that have a second name, for addresses as TYPE(C_PTR).
var pointers = []string{"MPI_Alloc_mem", "MPI_Win_allocate", "MPI_Win_allocate_shared", "MPI_Win_shared_query"}

// writeFortran writes the front-end.
func writeFortran(out *bytes.Buffer, s *surface) {
	fortranMPI.writeConversions(out)
	out.WriteString("\n#include \"mpifh_names.h\"\n")
	for _, f := range s.only(openMPIData.Functions).all {
		if strings.HasPrefix(f.Name, "MPI_T_") || slices.Contains(written, f.Name) {
			continue
		}
		names := []string{strings.ToLower(stem(f))}
		if slices.Contains(pointers, f.Name) {
			names = append(names, names[0]+"_cptr")
		}
		for _, name := range names {
			if s.has[f.Name] && !slices.Contains(unwritten, f.Name) {
				writeRoutine(out, f, "ROUTINE", name)
			} else {
				fmt.Fprintf(out, "\nROUTINE(%s, %s, (void)) { isthmus_missing(%q); }\n", name, strings.ToUpper(name), f.Name)
			}
		}
	}
	for _, f := range s.early() {
		writeRoutine(out, f, "EARLY", strings.ToLower(stem(f)))
	}
}

// writeRoutine writes a routine, which begins with a macro: it has variables for the arguments that C has as values, and texts of C's.
func writeRoutine(out *bytes.Buffer, f api.Function, macro, name string) {
	var params, lengths, variables, later []string
	for _, p := range f.Params {
		t := strings.TrimPrefix(p.Kind.CType(false), "const ")
		param := p.Declaration(false)
		switch k := p.Kind; {
		case k.Base == "...":
			continue
		case k.Base == "char":
			param = "char *f_" + p.Name
			lengths = append(lengths, "int f_"+p.Name+"_length")
			if k.Passing != "*" {
				param = "const " + param
				variables = append(variables, fmt.Sprintf("char *%[1]s = text_to(f_%[1]s, f_%[1]s_length);", p.Name))
				later = append(later, fmt.Sprintf("free(%s);", p.Name))
				break
			}
			room, given := standardValues[texts[f.Name]], "!outcome"
			if f.Name == "MPI_Info_get" {
				most := standardValues["MPI_MAX_INFO_VAL"]
				room, given = most+" + 1", "!outcome && *flag"
				variables = append(variables, fmt.Sprintf("if (valuelen > %s)\n\t\tvaluelen = %s;", most, most))
			}
			variables = append(variables, fmt.Sprintf("char %s[%s];", p.Name, room))
			later = append(later, fmt.Sprintf("if (%[2]s)\n\t\ttext_from(f_%[1]s, f_%[1]s_length, %[1]s);", p.Name, given))
		case k.Passing == "":
			param = fmt.Sprintf("const %s *f_%s", t, p.Name)
			variables = append(variables, fmt.Sprintf("%s %s = *f_%s;", t, p.Name, p.Name))
		case k.Passing != "&" && (k.Base == "status" || k.Base == "statuses"):
			variables = append(variables, fmt.Sprintf("%[1]s = ignored(%[1]s);", p.Name))
		case p.Name == "indx" && k.Passing == "*", p.Name == "outcount":
			variables = append(variables, fmt.Sprintf("*%s = UNDEFINED;", p.Name))
			if p.Name == "indx" {
				later = append(later, "from_indices(indx, 1);")
			}
		case p.Name == "array_of_indices":
			later = append(later, "from_indices(array_of_indices, *outcount);")
		}
		params = append(params, param)
	}
	params = append(append(params, "MPI_Fint *ierr"), lengths...)
	before, call, after := callOf(f, fortranMPI)
	fmt.Fprintf(out, "\n%s(%s, %s, (%s))\n{\n", macro, name, strings.ToUpper(name), strings.Join(params, ", "))
	for _, v := range variables {
		fmt.Fprintf(out, "\t%s\n", v)
	}
	fmt.Fprintf(out, "\tisthmus_enter(%q);\n%s\tint outcome = %s;\n%s", f.Name, strings.Join(before, ""), call, strings.Join(after, ""))
	for _, statement := range later {
		fmt.Fprintf(out, "\t%s\n", statement)
	}
	out.WriteString("\t*ierr = outcome;\n}\n")
}
