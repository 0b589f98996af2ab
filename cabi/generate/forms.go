package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// forms are those in which collective calls are made: what their names begin and end with, and the
// core's function that makes the call of a description.
var forms = []struct{ prefix, suffix, function string }{
	{"", "", "blocking"},
	{"I", "", "nonblocking"},
	{"", "Init", "persistent"},
}

// returnsDescription reports whether a function of the core describes a collective call.
func returnsDescription(f *ast.FuncDecl) bool {
	if f.Type.Results.NumFields() != 1 {
		return false
	}
	result, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && result.Name == "description"
}

// otherForms returns the source of the core's functions that follow from others: all forms of the collective calls that it
// describes, and those with large counts that do what one of the names that it has does.
func otherForms(all []api.Function, described, has map[string]bool) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "// %s\n\npackage core\n", marker)
	writeCollective(&out, all, described)
	for _, f := range all {
		small, call := sameAs(f)
		if small == "" || !has[small] {
			continue
		}
		var params, values []string
		for _, p := range signature(f, coreGo) {
			kind, word, _ := strings.Cut(p, " ")
			params, values = append(params, word+" "+kind), append(values, word)
		}
		fmt.Fprintf(&out, "\n// %s is %s.\nfunc %s(%s) int32 {\n\treturn %s\n}\n", goName(f), f.Name, goName(f), strings.Join(params, ", "),
			fmt.Sprintf(call, small+"("+strings.Join(values, ", ")+")"))
	}
	return out.Bytes()
}

// sameAs returns the core's function that does what f does, and what to make of its result: a type remembers that a
// constructor with large counts made it. It returns nothing if there is none.
func sameAs(f api.Function) (small, call string) {
	name := goName(f)
	if before, ok := strings.CutSuffix(name, "C"); ok && separate[f.Name] && f.Params[len(f.Params)-1].Name == "newtype" {
		return before, "isLarge(newtype, %s)"
	}
	if strings.HasSuffix(f.Name, "_x") { // of MPI-3, with counts of 64 bits, as the core has them
		return strings.TrimSuffix(name, "X"), "%s"
	}
	return "", ""
}

// writeCollective writes all forms of the collective calls that the core describes.
func writeCollective(out *bytes.Buffer, all []api.Function, described map[string]bool) {
	for _, f := range all {
		if f.Large() {
			continue
		}
		for _, form := range forms {
			call, ends := strings.CutSuffix(goName(f), form.suffix)
			call, begins := strings.CutPrefix(call, form.prefix)
			if !ends || !begins || call == "" {
				continue
			}
			if call = strings.ToLower(call[:1]) + call[1:]; !described[call] {
				continue
			}
			var params, own, values []string // own are the form's own, which the description does not have
			for _, p := range signature(f, coreGo) {
				kind, word, _ := strings.Cut(p, " ")
				params = append(params, word+" "+kind)
				switch word {
				case "comm", "info", "request":
					own = append(own, word)
				default:
					values = append(values, word)
				}
			}
			fmt.Fprintf(out, "\n// %s is %s.\nfunc %s(%s) int32 {\n\treturn %s(%q, %s, %s(%s))\n}\n", goName(f), f.Name, goName(f), strings.Join(params, ", "),
				form.function, f.Name, strings.Join(own, ", "), call, strings.Join(values, ", "))
		}
	}
}
