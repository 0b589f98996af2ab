package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// mpich is the front-end of MPICH's ABI: handles are numbers of 32 bits, statuses have another
// layout, and most constants other values. mpich_support.h has what is called here.
type mpich struct{}

// translated are the bases of numbers whose special values differ, with these.
var translated = map[string][]string{
	"rank":         {"MPI_ANY_SOURCE", "MPI_PROC_NULL", "MPI_ROOT"},
	"tag":          {"MPI_ANY_TAG"},
	"thread":       {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"},
	"comparison":   {"MPI_IDENT", "MPI_CONGRUENT", "MPI_SIMILAR", "MPI_UNEQUAL"},
	"split_type":   {"MPI_COMM_TYPE_SHARED", "MPI_COMM_TYPE_HW_GUIDED", "MPI_COMM_TYPE_HW_UNGUIDED"},
	"order":        {"MPI_ORDER_C", "MPI_ORDER_FORTRAN"},
	"typeclass":    {"MPI_TYPECLASS_INTEGER", "MPI_TYPECLASS_REAL", "MPI_TYPECLASS_COMPLEX"},
	"keyval":       {"MPI_KEYVAL_INVALID", "MPI_TAG_UB", "MPI_IO", "MPI_HOST", "MPI_WTIME_IS_GLOBAL", "MPI_APPNUM", "MPI_LASTUSEDCODE", "MPI_UNIVERSE_SIZE"},
	"topology":     {"MPI_CART", "MPI_GRAPH", "MPI_DIST_GRAPH"},
	"distribution": {"MPI_DISTRIBUTE_NONE", "MPI_DISTRIBUTE_BLOCK", "MPI_DISTRIBUTE_CYCLIC"},
	"darg":         {"MPI_DISTRIBUTE_DFLT_DARG"},
	"combiner":     nil, // all that begin with MPI_COMBINER_
	"error":        nil, // all that begin with MPI_ERR_ or MPI_T_ERR_
}

// isTranslated reports whether values of a kind have to be translated one by one.
func isTranslated(k api.Kind) bool {
	_, ok := translated[k.Base]
	return ok || k.IsHandle()
}

func (mpich) argument(f api.Function, p api.Param) argument {
	k := p.Kind
	switch {
	case isNarrowed(f, p):
		return narrowed(p)
	case f.Chapter == "tools" && k.Passing != "" && k.IsHandle(): // of a variable, which there is none of; it may be NULL
		return argument{value: "(uintptr_t)" + p.Name}
	case k.Passing == "&" && k.Base == "void", k.Passing == "*" && k.Base == "void" && strings.HasSuffix(p.Name, "buf"):
		return argument{value: "to_buffer(" + p.Name + ")"}
	case k.Base == "status":
		return statusArgument(p)
	case k.Base == "attribute":
		return argument{value: "(uintptr_t)" + p.Name, after: fmt.Sprintf("from_attribute(%s, outcome == 0 && *flag, %s);", f.Params[1].Name, p.Name)}
	case k.Base == "statuses":
		return arrayArgument(p, "MPI_ABI_Status", "statuses", "")
	case k.Passing == "[]" && (k.Base == "distribution" || k.Base == "darg"):
		return arrayArgument(p, "int32_t", k.Base+"s", "ndims")
	case k.Base == "contents":
		return argument{value: "(uintptr_t)" + p.Name, after: fmt.Sprintf("if (!outcome)\n\t\tfrom_contents(datatype, %s);", p.Name)}
	case strings.Contains(k.Passing, "[") && k.IsHandle():
		return handlesArgument(f, p)
	case strings.Contains(k.Passing, "[") && k.Base == "rank":
		return arrayArgument(p, "int32_t", "ranks", "n")
	case k.Passing == "" && isTranslated(k):
		return argument{value: fmt.Sprintf("to_%s(%s)", k.Base, p.Name)}
	case k.Passing == "*" && isTranslated(k):
		return outArgument(p)
	case k.Passing == "" && !k.IsHandle() && !k.IsToolPointer():
		return argument{value: p.Name}
	}
	return argument{value: "(uintptr_t)" + p.Name}
}

func (mpich) result(f api.Function, call string) string {
	if isTranslated(f.Result) {
		return fmt.Sprintf("from_%s(%s)", f.Result.Base, call)
	}
	return call
}

// outArgument hands the core memory for a value that it returns, or changes.
func outArgument(p api.Param) argument {
	t := "int32_t"
	if p.Kind.IsHandle() {
		t = "uintptr_t"
	}
	return argument{
		before: fmt.Sprintf("%s abi_%s = to_%s(*%s);", t, p.Name, p.Kind.Base, p.Name),
		value:  "(uintptr_t)&abi_" + p.Name,
		after:  fmt.Sprintf("*%s = from_%s(abi_%s);", p.Name, p.Kind.Base, p.Name),
	}
}

// statusArgument hands the core a status of its own; none for MPI_STATUS_IGNORE.
func statusArgument(p api.Param) argument {
	a := argument{
		before: fmt.Sprintf("MPI_ABI_Status abi_%s;", p.Name),
		value:  fmt.Sprintf("to_status(%s, &abi_%s)", p.Name, p.Name),
	}
	if p.Kind.Passing == "*" {
		a.after = fmt.Sprintf("from_status(%s, &abi_%s);", p.Name, p.Name)
	}
	return a
}

// handlesArgument hands the core an array of handles, as many as the function's first number says, or
// its first parameter if that is a count; those of Alltoallw have one for each process or neighbour.
func handlesArgument(f api.Function, p api.Param) argument {
	number := "0"
	if len(f.Params) > 0 && f.Params[0].Kind == (api.Kind{Base: "count"}) {
		return arrayArgument(p, "uintptr_t", p.Kind.Base+"s", f.Params[0].Name)
	}
	for _, q := range f.Params {
		if q.Name == "max_datatypes" || q.Kind == (api.Kind{Base: "int"}) && f.Name != "MPI_Type_get_contents" {
			number = q.Name
			break
		}
		if q.Kind == (api.Kind{Base: "comm"}) {
			number = "peers(" + q.Name + ")"
			if f.Chapter == "topologies" {
				number = "neighbours(" + q.Name + ", " + map[bool]string{true: "1", false: "0"}[p.Name == "sendtypes"] + ")"
			}
			break
		}
	}
	return arrayArgument(p, "uintptr_t", p.Kind.Base+"s", number)
}

// arrayArgument hands the core a copy of an array in its own form, which the support's functions
// allocate, copy back, unless it is constant, and free.
func arrayArgument(p api.Param, elem, what, number string) argument {
	length := number
	declares := strings.HasPrefix(p.Kind.Passing, "[*]") || p.Kind.Base == "request"
	if number == "" || declares {
		length = "abi_number" // that of the requests, which come first
	}
	a := argument{value: "(uintptr_t)abi_" + p.Name}
	a.before = fmt.Sprintf("%s *abi_%s = to_%s(%s, %s);", elem, p.Name, what, p.Name, length)
	a.after = fmt.Sprintf("from_%s(%s, abi_%s, %s);", what, p.Name, p.Name, length)
	if p.Name == "sendtypes" {
		a.before = fmt.Sprintf("%s *abi_%s = sendbuf == IN_PLACE ? NULL : to_%s(%s, %s);", elem, p.Name, what, p.Name, length)
	}
	if declares {
		a.before = "const int abi_number = " + number + ";\n\t" + a.before
	}
	if p.Kind.Passing == "[]" {
		a.after = fmt.Sprintf("free(abi_%s);", p.Name)
	}
	return a
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

// writeMPICH writes the front-end of MPICH's ABI.
func writeMPICH(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "/* %s */\n/* The front-end of MPICH's ABI: libmpich.so.12. */\n\n#include \"mpich.h\"\n#include \"core.h\"\n#include \"mpich_support.h\"\n", marker)
	bases := []string{"comm", "datatype", "errhandler", "group", "info", "message", "op", "request", "session", "win"}
	for base := range translated {
		bases = append(bases, base)
	}
	slices.Sort(bases)
	for _, base := range bases {
		writeTranslation(out, base)
	}
	out.WriteString("\n#include \"mpich_convert.h\"\n")
	writeFunctions(out, s, mpich{})
	writeExtra(out, s)
}

// A pair is a constant's value in both ABIs.
type pair struct{ name, standard, mpich string }

// writeTranslation writes the two functions that translate the values of a base. Handles that are
// no constants keep their number (dynamic handles, mpich_support.h), and so do numbers.
func writeTranslation(out *bytes.Buffer, base string) {
	isHandle := api.Kind{Base: base}.IsHandle()
	from, to := "int", "int32_t"
	if isHandle {
		to = "uintptr_t"
	}
	all := pairs(base)
	fmt.Fprintf(out, "\nstatic inline %s to_%s(%s value)\n{\n\tswitch (value) {\n", to, base, from)
	for _, p := range all {
		fmt.Fprintf(out, "\tcase (int)%s: return %s; /* %s */\n", p.mpich, p.standard, p.name)
	}
	restTo, restFrom := others(base)
	fmt.Fprintf(out, "\t}\n\treturn %s;\n}\n", restTo)
	fmt.Fprintf(out, "\nstatic inline %s from_%s(%s value)\n{\n\tswitch (value) {\n", from, base, to)
	for _, p := range all {
		fmt.Fprintf(out, "\tcase %s: return (int)%s; /* %s */\n", p.standard, p.mpich, p.name)
	}
	fmt.Fprintf(out, "\t}\n\treturn %s;\n}\n", restFrom)
}

// others are the expressions for values that are no constants, to the core and from it.
func others(base string) (to, from string) {
	switch {
	case api.Kind{Base: base}.IsHandle():
		return "dynamic_to(value)", "dynamic_from(value, MPICH_" + strings.ToUpper(base) + ")"
	case base == "error":
		return "added_to(value)", "added_from(value)"
	}
	return "value", "value"
}

// pairs returns the constants of a base that both ABIs have.
func pairs(base string) []pair {
	values := api.MPICH()
	var all []pair
	seen := map[string]bool{}
	for _, c := range api.Constants() {
		ours := c.Type == "MPI_"+strings.ToUpper(base[:1])+base[1:] || slices.Contains(translated[base], c.Name) ||
			base == "error" && (strings.HasPrefix(c.Name, "MPI_ERR_") || strings.HasPrefix(c.Name, "MPI_T_ERR_")) ||
			base == "combiner" && strings.HasPrefix(c.Name, "MPI_COMBINER_")
		theirs, ok := values[c.Name]
		if ours && ok && !seen[theirs] {
			seen[theirs] = true
			all = append(all, pair{c.Name, c.Value, theirs})
		}
	}
	return all
}
