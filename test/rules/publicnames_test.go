package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

var (
	// named is what has a name in a .proto file: a package, a service, a call, a message, an enumeration, and a field or value.
	named       = regexp.MustCompile(`(?m)^\s*(?:package ([\w.]+);|(?:service|rpc|message|enum|oneof) (\w+)|(?:repeated |optional )?(?:[\w.]+ )?(\w+) = \d+)`)
	metricName  = regexp.MustCompile(`^isthmus_[a-z_]+$`)
	partsOfName = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

// protoNames returns the names that a .proto file gives.
func protoNames(text string) (names []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1]+m[2]+m[3])
	}
	return names
}

// goNames returns the names that users see of a Go file: metrics, and the keys of settings and of JSON, both those of
// structs and those of maps whose values have any type.
func goNames(file *ast.File) (names []string) {
	literal := func(x ast.Expr) (string, bool) {
		if l, ok := x.(*ast.BasicLit); ok && l.Kind == token.STRING {
			s, err := strconv.Unquote(l.Value)
			return s, err == nil
		}
		return "", false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag == nil {
				break
			}
			tag, _ := literal(n.Tag)
			for _, of := range []string{"json", "yaml"} {
				if name, _, _ := strings.Cut(reflect.StructTag(tag).Get(of), ","); name != "" && name != "-" {
					names = append(names, name)
				}
			}
		case *ast.BasicLit:
			if s, ok := literal(n); ok && metricName.MatchString(s) {
				names = append(names, s)
			}
		case *ast.CompositeLit:
			if m, ok := n.Type.(*ast.MapType); !ok || fmt.Sprint(m.Key, m.Value) != "string any" {
				break
			}
			for _, e := range n.Elts {
				if s, ok := literal(e.(*ast.KeyValueExpr).Key); ok {
					names = append(names, s)
				}
			}
		}
		return true
	})
	return names
}

// unsuited returns those of the names that consist of, or have as a part, a word that the glossary avoids in them.
func unsuited(names []string, words map[string][]string) (all []string) {
	for _, name := range names {
		for _, part := range partsOfName.FindAllString(name, -1) {
			part = strings.ToLower(part)
			_, plural := words[strings.TrimSuffix(part, "s")]
			if _, ok := words[part]; ok || plural {
				all = append(all, fmt.Sprintf("%s has the word %q", name, part))
			}
		}
	}
	return all
}

// No name of the protocol, of a metric, of a setting or of a key of JSON has a word that the glossary avoids.
func TestPublicNames(t *testing.T) {
	words := avoided(labtest.ReadFile(t, "docs/glossary.md"))
	names := map[string]string{} // where each was found
	root := filepath.FromSlash(labtest.Root)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		path, err = filepath.Rel(root, path)
		for _, name := range protoNames(labtest.ReadFile(t, path)) {
			names[name] = filepath.ToSlash(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	protocol := len(names)
	for _, s := range sources(t) {
		for _, name := range goNames(s.file) {
			names[name] = s.folder
		}
	}
	if protocol < 300 || len(names) < protocol+400 {
		t.Fatalf("found %d names only, %d of them in .proto files", len(names), protocol)
	}
	for _, complaint := range unsuited(slices.Sorted(maps.Keys(names)), words) {
		name, _, _ := strings.Cut(complaint, " ")
		t.Errorf("%s: %s; see docs/glossary.md for what to say instead", names[name], complaint)
	}
}

// The rule must be able to complain, of everything that users see.
func TestPublicNamesComplain(t *testing.T) {
	words := map[string][]string{"slate": nil, "lane": {"a/b"}}
	for text, want := range map[string]int{
		"package x.slate.v1;": 1, "service Slates {": 1, "  rpc DrawLane(A) returns (B);": 1, "message SlateA {\n  string b = 1;\n}": 1,
		"enum B {\n  LANE_X = 0;\n}": 1, "  repeated x.y.Z full_lanes = 12;  // why": 1, "enum A {\n  SLATE = 0;\n  LANE = 1;\n}": 2,
		"// a slate\nmessage Planet { uint64 plane = 1; }": 0,
	} {
		if got := unsuited(protoNames(text), words); len(got) != want {
			t.Errorf("%s: complaints %q, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{
		"type a struct { B int `json:\"slate_b,omitempty\"` }": 1, "type a struct { B int `yaml:\"b_lanes\" help:\"a slate\"` }": 1,
		`var a = f("isthmus_slate_total", "A slate.")`: 1, `var a = map[string]any{"lane": 1}`: 1, "type a struct { slate int `json:\"b\"` }": 0,
		`var a = map[string]int{"lane": 1}`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := unsuited(goNames(file), words); len(got) != want {
			t.Errorf("%s: complaints %q, want %d", text, got, want)
		}
	}
}
