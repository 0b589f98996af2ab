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

// collectiveForms returns the source of the core's functions for all forms of the calls that it describes.
func collectiveForms(all []api.Function, described map[string]bool) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "// %s\n\npackage core\n", marker)
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
			fmt.Fprintf(&out, "\n// %s is %s.\nfunc %s(%s) int32 {\n\treturn %s(%q, %s, %s(%s))\n}\n", goName(f), f.Name, goName(f), strings.Join(params, ", "),
				form.function, f.Name, strings.Join(own, ", "), call, strings.Join(values, ", "))
		}
	}
	return out.Bytes()
}
