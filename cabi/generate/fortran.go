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
	writeTypes(out, "int ", openMPIStatus, "__attribute__((packed, aligned(4))) ")
}

// writeFortranHandle writes the two functions that translate the handles of a base.
func writeFortranHandle(out *bytes.Buffer, base string, _ []pair) {
	writeSwitches(out, base, base, "uintptr_t", pairs(openMPIData.Fortran, base), "(uintptr_t)value", "(int)value")
}

// written are the routines that fortran_names.h has: their arguments are not those of C, or they return a value.
var written = []string{"MPI_Init", "MPI_Init_thread", "MPI_Initialized", "MPI_Finalized", "MPI_Wtime", "MPI_Wtick", "MPI_Pcontrol", "MPI_Aint_add", "MPI_Aint_diff",
	"MPI_Comm_create_keyval", "MPI_Type_create_keyval", "MPI_Keyval_create", "MPI_Comm_get_attr", "MPI_Type_get_attr", "MPI_Attr_get",
	"MPI_Comm_set_attr", "MPI_Type_set_attr", "MPI_Attr_put"}

// unwritten are functions whose functions of the program's, or texts, have another form in Fortran, which fortran_names.h does not
// have yet: stubs, also where the core has the function.
var unwritten = []string{"MPI_Grequest_start", "MPI_Register_datarep", "MPI_Win_create_keyval", "MPI_Win_get_attr", "MPI_Win_set_attr", "MPI_Comm_spawn", "MPI_Comm_spawn_multiple"}

// givesPointer reports whether a parameter is an address that the function returns. Such routines have a second name, for those that
// return it as TYPE(C_PTR).
func givesPointer(p api.Param) bool { return p.Name == "baseptr" || isDetached(p) }

// isDetached reports whether a parameter is the address of a buffer that is given back, of which only TYPE(C_PTR) is of use in Fortran.
func isDetached(p api.Param) bool { return p.Name == "buffer_addr" }

// writeFortran writes the front-end of Open MPI's ABI.
func writeFortran(out *bytes.Buffer, s *surface) {
	fortranMPI.writeConversions(out)
	out.WriteString("\n#include \"fortran_names.h\"\n")
	writeRoutines(out, s, fortranMPI, s.only(openMPIData.Functions).all)
	for _, f := range s.early() {
		writeRoutine(out, f, fortranMPI, "EARLY", strings.ToLower(stem(f)))
	}
}

// writeRoutines writes routines for the functions of an ABI, but those of the tools interface, and those that are written by hand.
func writeRoutines(out *bytes.Buffer, s *surface, abi foreign, all []api.Function) {
	for _, f := range all {
		if !isInFortran(f) || slices.Contains(written, f.Name) || slices.Contains(abi.written, f.Name) {
			continue
		}
		names := []string{routineName(f)}
		if slices.ContainsFunc(f.Params, givesPointer) {
			names = append(names, names[0]+"_cptr")
		}
		for _, name := range names {
			if s.has[f.Name] && !slices.Contains(unwritten, strings.TrimSuffix(f.Name, "_c")) {
				writeRoutine(out, f, abi, "ROUTINE", name)
			} else {
				fmt.Fprintf(out, "\nROUTINE(%s, %s, (void)) { isthmus_missing(%q); }\n", name, strings.ToUpper(name), f.Name)
			}
		}
	}
}

// isInFortran reports whether Fortran has a function: not the tools interface, nor what C converts Fortran's handles and statuses with.
func isInFortran(f api.Function) bool {
	return !strings.HasPrefix(f.Name, "MPI_T_") && !isConversion(f) && !strings.HasPrefix(f.Name, "MPI_Status_c2") && !strings.HasPrefix(f.Name, "MPI_Status_f")
}

// routineName is what the names of f's routine are made from: "comm_rank".
func routineName(f api.Function) string {
	return strings.ToLower(strings.TrimPrefix(f.Name, "MPI_"))
}

// writeRoutine writes a routine, which begins with a macro: it has variables for the arguments that C has as values, and texts of C's.
func writeRoutine(out *bytes.Buffer, f api.Function, abi foreign, macro, name string) {
	var params, lengths, variables, later []string
	for _, p := range f.Params {
		t := strings.TrimPrefix(p.Kind.CType(f.Large()), "const ")
		param := p.Declaration(f.Large())
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
		case isDetached(p) && !strings.HasSuffix(name, "_cptr"):
			param = "void *f_" + p.Name
			variables = append(variables, fmt.Sprintf("void *address, *%s = &address;", p.Name))
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
	before, call, after := callOf(f, abi)
	fmt.Fprintf(out, "\n%s(%s, %s, (%s))\n{\n", macro, name, strings.ToUpper(name), strings.Join(params, ", "))
	for _, v := range variables {
		fmt.Fprintf(out, "\t%s\n", v)
	}
	fmt.Fprintf(out, "\tisthmus_enter(%q);\n%s\tint outcome = %s;\n%s", f.Name, strings.Join(before, ""), call, strings.Join(after, ""))
	for _, statement := range later {
		fmt.Fprintf(out, "\t%s\n", statement)
	}
	out.WriteString("\tset_error(ierr, outcome);\n}\n")
}

// fortranStandard is the front-end that Fortran programs of the standard ABI call, whose values are C's. The standard says nothing
// of it but names: programs have our modules, which their compiler compiles.
var fortranStandard = foreign{library: "libmpi_abi_fortran.so.1", name: "the standard ABI in Fortran", prefix: "abifh",
	written: []string{"MPI_Info_create_env", "MPI_Info_get_string", "MPI_Session_get_nth_pset"}}

// writeStandardFortranHeader writes the types.
func writeStandardFortranHeader(out *bytes.Buffer, _ *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The types of the standard ABI in Fortran. */\n\n#include <stddef.h>\n#include <stdint.h>\n\n", marker)
	writeTypes(out, "int ", "\tint MPI_internal[5];\n", "")
}

// writeStandardFortran writes that front-end.
func writeStandardFortran(out *bytes.Buffer, s *surface) {
	abi := fortranStandard
	fmt.Fprintf(out, "/* %s */\n/* The front-end of %s: %s. */\n\n#include \"abifh.h\"\n#include \"core.h\"\n#include \"abifh_support.h\"\n\n", marker, abi.name, abi.library)
	for _, base := range bases() {
		core := "int32_t"
		if (api.Kind{Base: base}).IsHandle() {
			core = "uintptr_t"
		}
		fmt.Fprintf(out, "SAME(%s, %s)\n", base, core)
	}
	out.WriteString("\n#include \"convert.h\"\n#include \"fortran_names.h\"\n#include \"abifh_names.h\"\n")
	writeRoutines(out, s, abi, s.all)
}
