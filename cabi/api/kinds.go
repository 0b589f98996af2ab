package api

import "strings"

// Kind is what a parameter is: the meaning of its value (Base), and how it is passed.
//
//	datatype       a value
//	&status        a pointer to what the function reads
//	*datatype      a pointer to what it writes
//	[]count        an array that it reads
//	[*]request     an array that it writes, or changes
//	***char, [*]*char, [3]int   argv, arrays of strings, triplets
type Kind struct {
	Passing string // "", "&", "*", "[]", "[*]", ...
	Base    string // "rank", "count", "datatype", ...
}

func parseKind(text string) Kind {
	if text == "..." {
		return Kind{Base: text}
	}
	n := strings.LastIndexAny(text, "&*]") + 1
	if strings.HasPrefix(text, "[3]") {
		n = len("[3]")
	}
	return Kind{text[:n], text[n:]}
}

func (k Kind) String() string { return k.Passing + k.Base }

// cTypes are the types of the bases that are not named after a type of MPI's.
var cTypes = map[string]string{
	"int": "int", "double": "double", "char": "char", "void": "void", "const_int": "const int",
	"attribute": "void", // a value, which may be the address of an int

	"error":        "int", // a class or code of an error
	"rank":         "int", // or MPI_ANY_SOURCE, MPI_PROC_NULL, MPI_ROOT
	"tag":          "int", // or MPI_ANY_TAG
	"color":        "int", // or MPI_UNDEFINED
	"thread":       "int", // MPI_THREAD_SINGLE and others
	"split_type":   "int", // MPI_COMM_TYPE_SHARED and others
	"comparison":   "int", // MPI_IDENT and others
	"combiner":     "int", // MPI_COMBINER_NAMED and others
	"order":        "int", // MPI_ORDER_C or MPI_ORDER_FORTRAN
	"typeclass":    "int", // MPI_TYPECLASS_INTEGER and others
	"topology":     "int", // MPI_CART and others
	"contents":     "int", // arguments of a constructor, among them orders and the two kinds below
	"distribution": "int", // MPI_DISTRIBUTE_BLOCK and others
	"darg":         "int", // or MPI_DISTRIBUTE_DFLT_DARG
	"keyval":       "int", // or MPI_KEYVAL_INVALID, MPI_TAG_UB and others
	"count64":      "MPI_Count",
	"statuses":     "MPI_Status", // an array that may be MPI_STATUSES_IGNORE

	"integer":        "void", // an attribute's value in Fortran
	"fortran_keyval": "int",  // a keyval, of which Fortran has other predefined ones
}

// CType returns the C type of k's base. A count has another one in large functions, those with
// counts of 64 bits, and so has a displacement in elements.
func (k Kind) CType(large bool) string {
	switch t := cTypes[k.Base]; {
	case t != "":
		return t
	case k.Base == "count" && large:
		return "MPI_Count"
	case k.Base == "displ" && large:
		return "MPI_Aint"
	case k.Base == "count" || k.Base == "displ":
		return "int"
	}
	return "MPI_" + strings.ToUpper(k.Base[:1]) + k.Base[1:]
}

// Declaration returns p as C declares it: "const int recvcounts[]".
func (p Param) Declaration(large bool) string {
	t := p.Kind.CType(large)
	switch k := p.Kind; {
	case k.Base == "...":
		return "..."
	case k.Passing == "":
		return t + " " + p.Name
	case k.Passing == "&":
		return "const " + t + " *" + p.Name
	case k.Passing == "[]":
		return "const " + t + " " + p.Name + "[]"
	case k.Passing == "[3]":
		return t + " " + p.Name + "[][3]"
	case strings.HasPrefix(k.Passing, "[*]"):
		return strings.TrimRight(t+" "+k.Passing[len("[*]"):], " ") + strings.Repeat(" ", spaces(k)) + p.Name + "[]"
	default:
		return t + " " + k.Passing + p.Name
	}
}

// spaces is how many blanks stand between the type and the name of an array: none after a star.
func spaces(k Kind) int {
	if k.Passing == "[*]" {
		return 1
	}
	return 0
}

// IsToolPointer reports whether k's values are pointers of the tools interface, which are the same in all ABIs: its handles, and functions
// for its events.
func (k Kind) IsToolPointer() bool {
	return strings.HasPrefix(k.Base, "t_") && k.Base != "t_cb_safety" && k.Base != "t_source_order"
}

// IsHandle reports whether k's values are handles of MPI's objects, those of the tools interface
// not counted.
func (k Kind) IsHandle() bool {
	switch k.Base {
	case "comm", "datatype", "errhandler", "file", "group", "info", "message", "op", "request", "session", "win":
		return true
	}
	return false
}
