package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// foreign is the front-end of an ABI that is not the standard's: handles and statuses have other forms, and most
// constants other values. Its support header and convert.h have what is called here.
type foreign struct {
	library, name string            // "libmpich.so.12", "MPICH's ABI"
	prefix        string            // of the names of its C sources
	statuses      string            // the header that converts its statuses
	values        map[string]string // of constants, by name
	functions     []string          // that it has; nil if it has all
	handle        func(out *bytes.Buffer, base string, all []pair)
	written       []string                                         // routines of Fortran's that are not generated
	end           func(abi foreign, out *bytes.Buffer, s *surface) // writes what follows all functions; nil if nothing does
}

// mpich is the front-end of MPICH's ABI.
var mpich = foreign{library: "libmpich.so.12", name: "MPICH's ABI", prefix: "mpich", statuses: "mpich_values.h", values: api.MPICH(), handle: writeMPICHHandle, end: writeExtra}

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

func (abi foreign) argument(f api.Function, p api.Param) argument {
	k := p.Kind
	switch {
	case k == (api.Kind{Passing: "*", Base: "char"}) && abi.isShorter(texts[f.Name]):
		return abi.textArgument(f, p)
	case k.Base == "int" && strings.HasSuffix(p.Name, "weights"):
		return argument{value: "to_weights(" + p.Name + ")"}
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
		return outArgument(p, !k.IsHandle() || isRead(f, p))
	case k.Passing == "" && !k.IsHandle() && !k.IsToolPointer():
		return argument{value: p.Name}
	}
	return argument{value: "(uintptr_t)" + p.Name}
}

func (foreign) result(f api.Function, call string) string {
	if isTranslated(f.Result) {
		return fmt.Sprintf("from_%s(%s)", f.Result.Base, call)
	}
	return call
}

// isRead reports whether f reads a handle that it has the address of. Others may be anything before the call, where
// even to look what they are an address of would be wrong.
func isRead(f api.Function, p api.Param) bool {
	switch f.Name {
	case "MPI_Wait", "MPI_Test", "MPI_Start", "MPI_Cancel", "MPI_Type_commit", "MPI_Comm_disconnect", "MPI_File_close", "MPI_Session_finalize":
		return true
	case "MPI_Mrecv", "MPI_Mrecv_c", "MPI_Imrecv", "MPI_Imrecv_c":
		return p.Kind.Base == "message"
	}
	return strings.HasSuffix(f.Name, "_free")
}

// outArgument hands the core memory for a value that it returns or, if that is read, changes. No handle of the core's is 0.
func outArgument(p api.Param, isRead bool) argument {
	t, before, after := "int32_t", "0", fmt.Sprintf("*%s = from_%s(abi_%s);", p.Name, p.Kind.Base, p.Name)
	if p.Kind.IsHandle() {
		t = "uintptr_t"
	}
	if isRead {
		before = fmt.Sprintf("to_%s(*%s)", p.Kind.Base, p.Name)
	} else {
		after = fmt.Sprintf("if (abi_%s)\n\t\t%s", p.Name, after)
	}
	return argument{before: fmt.Sprintf("%s abi_%s = %s;", t, p.Name, before), value: "(uintptr_t)&abi_" + p.Name, after: after}
}

// texts are the functions that write a text, and the constant with the room that a program has for it.
var texts = map[string]string{
	"MPI_Comm_get_name": "MPI_MAX_OBJECT_NAME", "MPI_Type_get_name": "MPI_MAX_OBJECT_NAME", "MPI_Win_get_name": "MPI_MAX_OBJECT_NAME",
	"MPI_Error_string": "MPI_MAX_ERROR_STRING", "MPI_Get_library_version": "MPI_MAX_LIBRARY_VERSION_STRING",
	"MPI_Get_processor_name": "MPI_MAX_PROCESSOR_NAME", "MPI_Info_get_nthkey": "MPI_MAX_INFO_KEY",
	"MPI_File_get_view": "MPI_MAX_DATAREP_STRING",
	"MPI_Lookup_name":   "MPI_MAX_PORT_NAME", "MPI_Open_port": "MPI_MAX_PORT_NAME",
}

// standardValues are the standard's constants.
var standardValues = func() map[string]string {
	values := map[string]string{}
	for _, c := range api.Constants() {
		values[c.Name] = c.Value
	}
	return values
}()

// isShorter reports whether programs have less room for a text than the core takes them to have.
func (abi foreign) isShorter(constant string) bool {
	here, is := strconv.Atoi(abi.values[constant])
	there, known := strconv.Atoi(standardValues[constant])
	return is == nil && known == nil && here < there
}

// textArgument hands the core room for a text, and returns as much of it as the program has room for.
func (abi foreign) textArgument(f api.Function, p api.Param) argument {
	constant, length := texts[f.Name], "NULL"
	if last := f.Params[len(f.Params)-1]; last.Name == "resultlen" {
		length = last.Name
	}
	return argument{
		before: fmt.Sprintf("char abi_%s[%s]; /* %s */", p.Name, standardValues[constant], constant),
		value:  "(uintptr_t)abi_" + p.Name,
		after:  fmt.Sprintf("if (!outcome)\n\t\tfrom_text(%s, abi_%s, %s, %s);", p.Name, p.Name, abi.values[constant], length),
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
	if strings.HasPrefix(p.Kind.Passing, "[*]") && p.Kind.Base == "datatype" { // is not read
		a.before = strings.Replace(a.before, fmt.Sprintf("to_%s(%s, %s)", what, p.Name, length), fmt.Sprintf("array(%s, sizeof(%s))", length, elem), 1)
	}
	if p.Kind.Passing == "[]" {
		a.after = fmt.Sprintf("free(abi_%s);", p.Name)
	}
	return a
}

// write writes the front-end.
func (abi foreign) write(out *bytes.Buffer, s *surface) {
	abi.writeConversions(out)
	writeFunctions(out, s.only(abi.functions), abi)
	if abi.end != nil {
		abi.end(abi, out, s)
	}
}

// writeConversions writes what comes before all functions.
func (abi foreign) writeConversions(out *bytes.Buffer) {
	fmt.Fprintf(out, "/* %s */\n/* The front-end of %s: %s. */\n\n", marker, abi.name, abi.library)
	fmt.Fprintf(out, "#include \"%[1]s.h\"\n#include \"core.h\"\n#include \"%[1]s_support.h\"\n", abi.prefix)
	for _, base := range bases() {
		if all := pairs(abi.values, base); (api.Kind{Base: base}).IsHandle() {
			abi.handle(out, base, all)
		} else {
			abi.writeNumber(out, base, all)
		}
	}
	fmt.Fprintf(out, "\n#include \"%s\"\n#include \"convert.h\"\n", abi.statuses)
}

// bases returns the bases of handles, and of the numbers that are translated.
func bases() []string {
	all := []string{"comm", "datatype", "errhandler", "file", "group", "info", "message", "op", "request", "session", "win"}
	all = slices.AppendSeq(all, maps.Keys(translated))
	slices.Sort(all)
	return all
}

// A pair is a constant's value in both ABIs.
type pair struct {
	name, standard, foreign string
	isLost                  bool // the foreign one stands for another constant
}

// writeNumber writes the two functions that translate the numbers of a base; those without a name stay. An error that
// the ABI does not have is another one there.
func (abi foreign) writeNumber(out *bytes.Buffer, base string, all []pair) {
	restTo, restFrom := "value", "value"
	if base == "error" {
		restTo, restFrom = "added_to(value)", "added_from(value)"
		for _, c := range api.Constants() {
			if has := abi.values[c.Name] != ""; !has && isOf(base, c) {
				all = append(all, pair{c.Name, c.Value, abi.values["MPI_ERR_OTHER"], true})
			}
		}
	}
	writeSwitches(out, base, base, "int32_t", all, restTo, restFrom)
}

// writeMPICHHandle writes the two functions that translate the handles of a base. Those that are no constants keep
// their number (dynamic handles, mpich_support.h).
func writeMPICHHandle(out *bytes.Buffer, base string, all []pair) {
	if base == "file" {
		return // a pointer there, and nothing here yet
	}
	writeSwitches(out, base, base, "uintptr_t", all, "dynamic_to(value)", "dynamic_from(value, MPICH_"+strings.ToUpper(base)+")")
}

// writeSwitches writes two functions that translate the values of a base, which the core has in a C type, and the
// other ABI as numbers; and what they return for values that are no constants. They are called to_ and from_ to and from.
func writeSwitches(out *bytes.Buffer, to, from, core string, all []pair, restTo, restFrom string) {
	fmt.Fprintf(out, "\nstatic inline %s to_%s(int value)\n{\n\tswitch (value) {\n", core, to)
	for _, p := range all {
		if p.isLost {
			continue
		}
		fmt.Fprintf(out, "\tcase (int)%s: return %s; /* %s */\n", p.foreign, p.standard, p.name)
	}
	fmt.Fprintf(out, "\t}\n\treturn %s;\n}\n", restTo)
	fmt.Fprintf(out, "\nstatic inline int from_%s(%s value)\n{\n\tswitch (value) {\n", from, core)
	for _, p := range all {
		fmt.Fprintf(out, "\tcase %s: return (int)%s; /* %s */\n", p.standard, p.foreign, p.name)
	}
	fmt.Fprintf(out, "\t}\n\treturn %s;\n}\n", restFrom)
}

// isOf reports whether a constant is one of a base.
func isOf(base string, c api.Constant) bool {
	return c.Type == "MPI_"+strings.ToUpper(base[:1])+base[1:] || slices.Contains(translated[base], c.Name) ||
		base == "error" && (strings.HasPrefix(c.Name, "MPI_ERR_") || strings.HasPrefix(c.Name, "MPI_T_ERR_")) ||
		base == "combiner" && strings.HasPrefix(c.Name, "MPI_COMBINER_")
}

// pairs returns the constants of a base that the standard's ABI and another have, with these values.
func pairs(values map[string]string, base string) []pair {
	var all []pair
	seen := map[string]bool{}
	for _, c := range api.Constants() {
		theirs, ok := values[c.Name]
		if ok && isOf(base, c) && !seen[theirs] {
			seen[theirs] = true
			all = append(all, pair{name: c.Name, standard: c.Value, foreign: theirs})
		}
	}
	return all
}
