package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// openMPIData is what Open MPI's header and library have.
var openMPIData = api.OpenMPI()

// openMPI is the front-end of Open MPI's ABI, version 4.1.
var openMPI = foreign{library: "libmpi.so.40", name: "Open MPI's ABI", prefix: "openmpi", statuses: "openmpi_values.h",
	values: openMPIData.Values, functions: openMPIData.Functions, handle: writeOpenMPIHandle, end: writeOpenMPIEnd}

// minHandle is the size of the smallest object whose address is a handle.
const minHandle = 256

// references are the objects that are addresses of others, besides those called X_addr.
var references = map[string]string{"MPI_F_STATUS_IGNORE": "mpi_fortran_status_ignore_", "MPI_F_STATUSES_IGNORE": "mpi_fortran_statuses_ignore_"}

// writeOpenMPIHeader writes the types of Open MPI's ABI and its data objects, for the front-end only.
func writeOpenMPIHeader(out *bytes.Buffer, _ *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The types of Open MPI's ABI, and its data objects. */\n\n#include <stddef.h>\n#include <stdint.h>\n\n", marker)
	writeTypes(out, "struct MPI_ABI_%s *", openMPIStatus, "")
	out.WriteString("/* A program that is not position-independent has copies of the objects that it names, in place of these, made as\n" +
		"   it starts. So handles are told by what they are addresses of; value is the core's handle. */\n" +
		"#define OBJECT_MARK UINT64_C(0x9c1f5ab27de8634d)\n#define OBJECT(name, size, handle) \\\n" +
		"\tstruct { uint64_t mark, value; char rest[(size) - 16]; } name = {.mark = OBJECT_MARK, .value = (handle)}\n\n")
	values := map[string]string{}
	for _, c := range api.Constants() {
		if name := openMPIData.Values[c.Name]; values[name] == "" {
			values[name] = c.Value
		}
	}
	var later strings.Builder // refers to others
	for _, o := range openMPIData.Objects {
		of, isAddress := strings.CutSuffix(o.Name, "_addr")
		switch {
		case o.Size >= minHandle && values[o.Name] == "":
			fmt.Fprintf(out, "OBJECT(%s, %d, 0);\n", o.Name, o.Size)
		case o.Size >= minHandle:
			fmt.Fprintf(out, "OBJECT(%s, %d, %s);\n", o.Name, o.Size, values[o.Name])
		case references[o.Name] != "":
			fmt.Fprintf(&later, "void *%s = &%s;\n", o.Name, references[o.Name])
		case isAddress && !strings.HasSuffix(of, "_ignore"):
			fmt.Fprintf(&later, "void *%s = &%s;\n", o.Name, of)
		default:
			fmt.Fprintf(out, "char %s[%d];\n", o.Name, o.Size)
		}
	}
	out.WriteString(later.String())
}

// openMPIStatus is what a status has besides the fields that all have.
const openMPIStatus = "\tint cancelled;\n\tsize_t count;\n"

// writeTypes writes the types of a front-end, handles and statuses in a form of its own.
func writeTypes(out *bytes.Buffer, handle, fields, attributes string) {
	out.WriteString("typedef ptrdiff_t MPI_Aint;\ntypedef long long MPI_Offset;\ntypedef long long MPI_Count;\ntypedef int MPI_Fint;\n")
	for _, h := range handles {
		t := handle
		if strings.Contains(t, "%s") {
			t = fmt.Sprintf(t, h)
		}
		fmt.Fprintf(out, "typedef %sMPI_%s;\n", t, h)
	}
	out.WriteString("typedef int MPI_T_cb_safety;\ntypedef int MPI_T_source_order;\n\n" +
		"typedef struct MPI_Status {\n\tint MPI_SOURCE;\n\tint MPI_TAG;\n\tint MPI_ERROR;\n" + fields + "} " + attributes + "MPI_Status;\n\n")
	writeCallbacks(out)
}

// writeOpenMPIHandle writes the two functions that translate the handles of a base: addresses of objects, or numbers that
// are no addresses (openmpi_support.h).
func writeOpenMPIHandle(out *bytes.Buffer, base string, all []pair) {
	t := api.Kind{Base: base}.CType(false)
	fmt.Fprintf(out, "\nstatic inline uintptr_t to_%s(%s handle)\n{\n\treturn handle_to(handle);\n}\n", base, t)
	fmt.Fprintf(out, "\nstatic inline %s from_%s(uintptr_t value)\n{\n\tswitch (value) {\n", t, base)
	for _, p := range all {
		fmt.Fprintf(out, "\tcase %s: return (%s)&%s; /* %s */\n", p.standard, t, p.foreign, p.name)
	}
	fmt.Fprintf(out, "\t}\n\treturn (%s)dynamic_from(value);\n}\n", t)
	writeSwitches(out, base+"_of_fortran", base+"_to_fortran", "uintptr_t", pairs(openMPIData.Fortran, base), "(uintptr_t)value", "(int)value")
}

// early returns the functions that Open MPI has under names of its own, MPIX_, before the standard had them.
func (s *surface) early() []api.Function {
	var all []api.Function
	for _, f := range s.all {
		if slices.Contains(openMPIData.Functions, earlyName(f)) {
			all = append(all, f)
		}
	}
	return all
}

func earlyName(f api.Function) string { return strings.Replace(f.Name, "MPI_", "MPIX_", 1) }

// writeOpenMPIEnd writes the functions that the table does not have, or under other names.
func writeOpenMPIEnd(abi foreign, out *bytes.Buffer, s *surface) {
	for _, f := range s.early() {
		writeFunction(out, f, earlyName(f), s.has[f.Name], abi)
	}
	out.WriteString("\n#include \"openmpi_names.h\"\n")
}
