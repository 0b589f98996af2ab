package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Addresses and handles of the program's are uintptr: a sentinel such as MPI_IN_PLACE in a pointer ends the program when a
// stack is moved. No variable, parameter, result or field of this package, its rooms or the library around it has the type
// unsafe.Pointer, except for the result of the one function that makes an address a pointer at the moment of its use.
func TestNoPointers(t *testing.T) {
	for _, dir := range []string{".", "*", "../lib"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) < 2 {
			t.Fatalf("%s: %v, %v", dir, files, err)
		}
		for _, file := range files {
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range pointers(parsed) {
				t.Errorf("%v: the type unsafe.Pointer: an address of the program's is a uintptr", fset.Position(found.Pos()))
			}
		}
	}
}

// pointers returns where a file declares something of the type unsafe.Pointer.
func pointers(file *ast.File) []ast.Node {
	var all []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "pointer" && f.Recv == nil {
			return false
		}
		var declared ast.Expr
		switch n := n.(type) {
		case *ast.Field:
			declared = n.Type
		case *ast.ValueSpec:
			declared = n.Type
		case *ast.TypeSpec:
			declared = n.Type
		case *ast.AssignStmt: // p := unsafe.Pointer(...)
			for _, value := range n.Rhs {
				if call, ok := value.(*ast.CallExpr); ok && isPointer(call.Fun) {
					all = append(all, call)
				}
			}
		}
		if declared != nil && hasPointer(declared) {
			all = append(all, declared)
		}
		return true
	})
	return all
}

// hasPointer reports whether a type is unsafe.Pointer, or made of it; functions and structs are looked at by their fields.
func hasPointer(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.StarExpr:
		return hasPointer(t.X)
	case *ast.ArrayType:
		return hasPointer(t.Elt)
	case *ast.MapType:
		return hasPointer(t.Key) || hasPointer(t.Value)
	case *ast.ChanType:
		return hasPointer(t.Value)
	}
	return isPointer(t)
}

func isPointer(t ast.Expr) bool {
	s, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "unsafe" && s.Sel.Name == "Pointer"
}

// What the test above forbids is seen.
func TestPointersAreSeen(t *testing.T) {
	const source = "package p\nimport \"unsafe\"\n" +
		"func F(p unsafe.Pointer) {}\nfunc G() []unsafe.Pointer { return nil }\nvar v map[int]*unsafe.Pointer\ntype S struct{ f func(unsafe.Pointer) }\n" +
		"func H(x *int) { p := unsafe.Pointer(x); _ = p }\nfunc ok(x *int) uintptr { return uintptr(unsafe.Pointer(x)) }\nfunc pointer() unsafe.Pointer { return nil }\n"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := pointers(file); len(found) != strings.Count(source, "unsafe.Pointer")-2 {
		t.Errorf("%d places found", len(found))
	}
}
