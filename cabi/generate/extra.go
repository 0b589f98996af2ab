package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// extraMPICH is an ABI with the kinds of functions that only MPICH's libraries call. mpich_extra.h has what is called here.
type extraMPICH struct{ foreign }

func (m extraMPICH) argument(f api.Function, p api.Param) argument {
	switch p.Kind.Base {
	case "fortran_keyval":
		return argument{value: "to_keyval(from_fortran_keyval(" + p.Name + "))"}
	case "integer":
		if strings.Contains(f.Name, "_get_") {
			return argument{value: "(uintptr_t)" + p.Name, after: fmt.Sprintf("from_integer(%s, outcome == 0 && *flag, %s);", f.Params[1].Name, p.Name)}
		}
		return argument{value: "(uintptr_t)" + p.Name}
	}
	return m.foreign.argument(f, p)
}

// answeredExtra are functions of MPICH's that need no core: no memory is a graphics card's.
var answeredExtra = map[string]string{
	"MPIX_GPU_query_support":  "*is_supported = 0;\n\treturn 0;",
	"MPIX_Query_cuda_support": "return 0;", "MPIX_Query_hip_support": "return 0;", "MPIX_Query_ze_support": "return 0;",
}

// writeExtra writes the functions that MPICH's ABI has beside the standard's.
func writeExtra(abi foreign, out *bytes.Buffer, s *surface) {
	byName := map[string]api.Function{}
	for _, f := range s.all {
		byName[f.Name] = f
	}
	out.WriteString("\n#include \"mpich_extra.h\"\n")
	for _, f := range api.Extras() {
		prototype := func(name string) string { return "int " + name + "(void)" } // of one that does not return
		same, isOther := byName[f.Same]
		switch {
		case isOther:
			prototype = same.Prototype
		case f.Result.Base != "":
			prototype = f.Prototype
		}
		name := f.Name
		if f.HasProfiling() {
			name = "P" + f.Name
		}
		fmt.Fprintf(out, "\n%s", prototype(name))
		if isOther {
			fmt.Fprintf(out, " __attribute__((alias(%q)));\n", "P"+same.Name)
		} else {
			out.WriteString("\n{\n")
			writeExtraBody(abi, out, f.Function, s)
			out.WriteString("}\n")
		}
		if f.HasProfiling() {
			fmt.Fprintf(out, "%s __attribute__((weak, alias(%q)));\n", prototype(f.Name), name)
		}
	}
}

func writeExtraBody(abi foreign, out *bytes.Buffer, f api.Function, s *surface) {
	switch answer := answeredExtra[f.Name]; {
	case answer != "":
		fmt.Fprintf(out, "\t%s\n", answer)
	case isConversion(f):
		writeConversion(out, f)
	case s.has[f.Name]:
		writeCall(out, f, extraMPICH{abi})
	default:
		fmt.Fprintf(out, "\tisthmus_missing(%q);\n", f.Name)
	}
}
