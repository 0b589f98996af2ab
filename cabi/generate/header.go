package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// handles are the types whose values are handles, in the order of the header.
var handles = []string{"Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win",
	"T_enum", "T_cvar_handle", "T_pvar_handle", "T_pvar_session", "T_event_instance", "T_event_registration"}

// writeHeader writes mpi.h of the standard ABI.
func writeHeader(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The standard's C ABI (MPI-5.0, chapter 20). */\n\n", marker)
	out.WriteString("#ifndef MPI_H_INCLUDED\n#define MPI_H_INCLUDED\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n")
	out.WriteString("typedef intptr_t MPI_Aint;\ntypedef int64_t MPI_Offset;\ntypedef int64_t MPI_Count;\n\n")
	for _, h := range handles {
		fmt.Fprintf(out, "typedef struct MPI_ABI_%s *MPI_%s;\n", h, h)
	}
	out.WriteString("typedef int MPI_T_cb_safety;\ntypedef int MPI_T_source_order;\n\n" +
		"typedef struct MPI_Status {\n\tint MPI_SOURCE;\n\tint MPI_TAG;\n\tint MPI_ERROR;\n\tint MPI_internal[5];\n} MPI_Status;\n\n")
	writeCallbacks(out)
	for _, c := range api.Constants() {
		if text := definition(c); text != "" {
			fmt.Fprintf(out, "#define %s %s\n", c.Name, text)
		}
	}
	out.WriteString("\n")
	for _, prefix := range []string{"", "P"} {
		for _, f := range s.all {
			fmt.Fprintf(out, "%s;\n", f.Prototype(prefix+f.Name))
		}
		out.WriteString("\n")
	}
	out.WriteString("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
}

// writeMPICHHeader writes the types of MPICH's ABI, for the front-end only: programs are compiled
// with MPICH's own header.
func writeMPICHHeader(out *bytes.Buffer, _ *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The types of MPICH's ABI. */\n\n#include <stdint.h>\n\n", marker)
	out.WriteString("typedef intptr_t MPI_Aint;\ntypedef int64_t MPI_Offset;\ntypedef int64_t MPI_Count;\n")
	for _, h := range handles {
		if strings.HasPrefix(h, "T_") || h == "File" {
			fmt.Fprintf(out, "typedef struct MPI_ABI_%s *MPI_%s;\n", h, h)
		} else {
			fmt.Fprintf(out, "typedef int MPI_%s;\n", h)
		}
	}
	out.WriteString("typedef int MPI_T_cb_safety;\ntypedef int MPI_T_source_order;\n\n" +
		"typedef struct MPI_Status {\n\tint count_lo;\n\tint count_hi_and_cancelled;\n\tint MPI_SOURCE;\n\tint MPI_TAG;\n\tint MPI_ERROR;\n} MPI_Status;\n\n")
	writeCallbacks(out)
}

// writeCallbacks declares the types of the program's functions.
func writeCallbacks(out *bytes.Buffer) {
	for _, c := range api.Callbacks() {
		fmt.Fprintf(out, "typedef %s (%s)(%s);\n", c.Result, c.Name, c.Params)
	}
	out.WriteString("\n")
}

// definition returns the text of a constant's macro; none for a type.
func definition(c api.Constant) string {
	switch {
	case strings.HasPrefix(c.Type, "C "):
		return ""
	case c.Type == "" || c.Type == "int" && !strings.HasPrefix(c.Value, "-"):
		return c.Value
	case c.Type == "int":
		return "(" + c.Value + ")"
	}
	return "((" + c.Type + ")" + c.Value + ")"
}

// writeCore declares what the core exports.
func writeCore(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "/* %s */\n/* What the core exports, in Go: numbers, handles as the standard ABI has them, and addresses. */\n\n#include <stdint.h>\n\n", marker)
	for _, f := range s.core {
		params := strings.Join(signature(f, coreC), ", ")
		if params == "" {
			params = "void"
		}
		fmt.Fprintf(out, "%s isthmus_%s(%s);\n", coreC.of(f.Result), stem(f), params)
	}
}

// direct are functions that are for the calling thread itself.
var direct = map[string]bool{"MPI_Is_thread_main": true}

// isServed reports whether f is called by way of callbacks.Serve where callbacks wait: all functions but those that return no
// error, and so neither wait nor test.
func isServed(f api.Function) bool { return f.Result == (api.Kind{Base: "error"}) && !direct[f.Name] }

// writeExports writes the Go functions that C calls.
func writeExports(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "// %s\n\n//go:build cabi && cgo && linux\n\npackage main\n\nimport \"C\"\n\nimport (\n\t\"github.com/isthmus-grid/isthmus/cabi/core\"\n\t\"github.com/isthmus-grid/isthmus/cabi/core/callbacks\"\n\t\"github.com/isthmus-grid/isthmus/cabi/tools\"\n)\n", marker)
	for _, f := range s.core {
		var params, args []string
		for _, p := range signature(f, coreGo) {
			kind, name, _ := strings.Cut(p, " ")
			params = append(params, name+" "+kind)
			args = append(args, name)
		}
		call := fmt.Sprintf("%s(%s)", carrier(f), strings.Join(args, ", "))
		fmt.Fprintf(out, "\n//export isthmus_%s\nfunc isthmus_%s(%s) %s {\n", stem(f), stem(f), strings.Join(params, ", "), coreGo.of(f.Result))
		if isServed(f) {
			fmt.Fprintf(out, "\tif callbacks.Expected() {\n\t\treturn callbacks.Serve(func() int32 {\n\t\t\treturn %s\n\t\t})\n\t}\n", call)
		}
		fmt.Fprintf(out, "\treturn %s\n}\n", call)
	}
}
