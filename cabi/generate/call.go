package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// argument is how a front-end hands a parameter to the core.
type argument struct {
	before string // statements before the call
	value  string // what it is called with
	after  string // statements after it
}

// A frontend translates parameters and results from and to an ABI.
type frontend interface {
	argument(f api.Function, p api.Param) argument
	result(f api.Function, call string) string // the expression of f's result
}

// writeFunctions writes all functions of an ABI: those that the core has as calls of it, others as
// stubs. PMPI_X is the function, and MPI_X a weak alias of it (MPI-5.0, section 15.2).
func writeFunctions(out *bytes.Buffer, s *surface, abi frontend) {
	for _, f := range s.all {
		writeFunction(out, f, f.Name, s.has[f.Name], abi)
	}
}

// writeFunction writes a function with a name that may be another than its own.
func writeFunction(out *bytes.Buffer, f api.Function, name string, has bool, abi frontend) {
	fmt.Fprintf(out, "\n%s\n{\n", f.Prototype("P"+name))
	if answer := answered[f.Name]; answer != "" {
		fmt.Fprintf(out, "\t*flag = %s;\n\treturn 0;\n", answer)
	} else if isConversion(f) {
		writeConversion(out, f)
	} else if has {
		writeCall(out, f, abi)
	} else {
		fmt.Fprintf(out, "\tisthmus_missing(%q);\n", name)
	}
	fmt.Fprintf(out, "}\n%s __attribute__((weak, alias(%q)));\n", f.Prototype(name), "P"+name)
}

// isConversion reports whether f converts between a handle and an int (MPI-5.0, chapter 20), or a Fortran INTEGER. Handles are
// numbers that an int has room for, also where C has them as pointers.
func isConversion(f api.Function) bool {
	_, last, _ := strings.Cut(stem(f), "_")
	return last == "toint" || last == "fromint" || last == "c2f" || last == "f2c"
}

// writeConversion writes the body of such a function.
func writeConversion(out *bytes.Buffer, f api.Function) {
	fmt.Fprintf(out, "\treturn (%s)(intptr_t)%s;\n", f.Result.CType(false), f.Params[0].Name)
}

// answered are functions without a call of the core, and what they return in flag: exit handlers ask
// them in children made by fork, where Go does not run.
var answered = map[string]string{"MPI_Initialized": "isthmus_is_initialized()", "MPI_Finalized": "isthmus_is_finalized()"}

// callOf returns the expression with which a front-end calls the core for f, and the statements before it and after it.
func callOf(f api.Function, abi frontend) (before []string, call string, after []string) {
	var values []string
	for _, p := range f.Params {
		if p.Kind.Base == "..." {
			continue
		}
		a := abi.argument(f, p)
		if a.before != "" {
			before = append(before, "\t"+a.before+"\n")
		}
		if a.after != "" {
			after = append(after, "\t"+a.after+"\n")
		}
		values = append(values, a.value)
		if isCallback(p.Kind) {
			values = append(values, "(uintptr_t)&call_"+p.Kind.Base)
		}
	}
	if hasCounts(f) {
		values = append(values, map[bool]string{true: "1", false: "0"}[f.Large()])
	}
	return before, abi.result(f, fmt.Sprintf("isthmus_%s(%s)", stem(f), strings.Join(values, ", "))), after
}

// writeCall writes the body of a function that calls the core.
func writeCall(out *bytes.Buffer, f api.Function, abi frontend) {
	before, call, after := callOf(f, abi)
	fmt.Fprintf(out, "\tisthmus_enter(%q);\n%s", f.Name, strings.Join(before, ""))
	if len(after) == 0 {
		fmt.Fprintf(out, "\treturn %s;\n", call)
		return
	}
	fmt.Fprintf(out, "\t%s outcome = %s;\n%s\treturn outcome;\n", f.Result.CType(false), call, strings.Join(after, ""))
}

// narrowed hands the core a count of 64 bits for one of the size of int, which the function
// returns; MPI_UNDEFINED where it does not fit (MPI-5.0, section 3.2.5).
func narrowed(p api.Param) argument {
	return argument{
		before: fmt.Sprintf("int64_t wide_%s = *%s;", p.Name, p.Name),
		value:  "(uintptr_t)&wide_" + p.Name,
		after:  fmt.Sprintf("*%s = isthmus_narrow(wide_%s);", p.Name, p.Name),
	}
}

// isNarrowed reports whether a parameter of f is such a count.
func isNarrowed(f api.Function, p api.Param) bool {
	return p.Kind.Passing == "*" && p.Kind.Base == "count" && !f.Large()
}

// standard is the front-end of the standard ABI, whose values are the core's.
type standard struct{}

func (standard) argument(f api.Function, p api.Param) argument {
	switch {
	case isNarrowed(f, p):
		return narrowed(p)
	case p.Kind.Passing != "" || p.Kind.IsHandle() || p.Kind.IsToolPointer():
		return argument{value: "(uintptr_t)" + p.Name}
	}
	return argument{value: p.Name}
}

func (standard) result(f api.Function, call string) string {
	if f.Result.IsHandle() {
		return "(" + f.Result.CType(false) + ")" + call
	}
	return call
}

// writeStandard writes the front-end of the standard ABI.
func writeStandard(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The front-end of the standard ABI: libmpi_abi.so.1. */\n\n#include \"mpi.h\"\n#include \"core.h\"\n#include \"standard_support.h\"\n", marker)
	writeFunctions(out, s, standard{})
}
