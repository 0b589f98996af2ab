package rules

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// What a package and a type may have at most. Lines count all files but tests and generated ones.
const (
	maxLines   = 6000
	maxMethods = 60
	maxFields  = 30
)

// larger are the packages and types that may have more, with how much, and why they are not
// split. A number here only ever falls: lower it when something moves out.
var larger = map[string]struct {
	most int
	why  string
}{
	"mpilib.Comm methods":                          {121, "the standard gives a communicator that many calls"},
	"mpilib/internal/engine/protocol.Peer methods": {64, "what two processes owe each other is decided in one place, without I/O"},
	"link/stream.Stream methods":                   {83, "one lock guards a stream and all its carriers; the decisions are in link/resume"},
	"link/stream.Stream fields":                    {38, "one lock guards a stream and all its carriers; the decisions are in link/resume"},
	"link/stream.Carrier fields":                   {46, "what was measured of a carrier is judged in one place"},
	"frontal/gateway.Gateway fields":               {33, "its counters are fields"},
	"lab/faults.Cell fields":                       {32, "one line of `isthmus-lab break --json`"},
}

// size is what one package has.
type size struct {
	lines           int
	methods, fields map[string]int
}

// sizes counts what each package of the module has.
func sizes(t *testing.T) map[string]size {
	t.Helper()
	all := map[string]size{}
	for folder := range packages(t) {
		all[folder] = size{methods: map[string]int{}, fields: map[string]int{}}
	}
	for _, source := range sources(t) {
		s, ours := all[source.folder]
		if !ours || ast.IsGenerated(source.file) {
			continue
		}
		s.lines += source.lines
		for _, d := range source.file.Decls {
			s.count(d)
		}
		all[source.folder] = s
	}
	return all
}

func (s *size) count(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			s.methods[baseName(d.Recv.List[0].Type)]++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			t, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if body, ok := t.Type.(*ast.StructType); ok {
				for _, f := range body.Fields.List {
					s.fields[t.Name.Name] += max(1, len(f.Names))
				}
			}
		}
	}
}

// baseName is the name of a receiver's type without its pointer and its parameters.
func baseName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return baseName(t.X)
	case *ast.IndexExpr:
		return baseName(t.X)
	case *ast.IndexListExpr:
		return baseName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// tooLarge lists what a package has more of than it may. It deletes from unused the exceptions
// that are needed.
func (s size) tooLarge(folder string, unused map[string]bool) (all []string) {
	check := func(what string, n, limit int) {
		if n <= limit {
			return
		}
		delete(unused, what)
		if e := larger[what]; n > e.most {
			all = append(all, fmt.Sprintf("%s: %d, at most %d: split it, or say in test/rules why not", what, n, max(limit, e.most)))
		}
	}
	check(folder+" lines", s.lines, maxLines)
	for t, n := range s.methods {
		check(folder+"."+t+" methods", n, maxMethods)
	}
	for t, n := range s.fields {
		check(folder+"."+t+" fields", n, maxFields)
	}
	return all
}

// No package and no type grows beyond what one can read, but for those that say why.
func TestSizes(t *testing.T) {
	unused := map[string]bool{}
	for what := range larger {
		unused[what] = true
	}
	for folder, s := range sizes(t) {
		for _, complaint := range s.tooLarge(folder, unused) {
			t.Error(complaint)
		}
	}
	for what := range unused {
		t.Errorf("%s: no exception is needed any more; remove it", what)
	}
}

// The rules must be able to complain.
func TestSizeRulesComplain(t *testing.T) {
	s := size{lines: maxLines + 1, methods: map[string]int{"T": maxMethods, "U": maxMethods + 1}, fields: map[string]int{"T": maxFields + 1}}
	got := strings.Join(s.tooLarge("x/y", map[string]bool{}), "\n")
	for _, want := range []string{"x/y lines: 6001, at most 6000", "x/y.U methods: 61, at most 60", "x/y.T fields: 31, at most 30"} {
		if !strings.Contains(got, want) {
			t.Errorf("complaints %q lack %q", got, want)
		}
	}
	if strings.Contains(got, "x/y.T methods") {
		t.Errorf("%q complains of what is allowed", got)
	}
}
