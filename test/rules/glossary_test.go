package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// declaredTypes returns, for the name of a type in lower case, the folders whose packages
// declare one, without tests and generated files.
func declaredTypes(t *testing.T, root string) map[string][]string {
	t.Helper()
	types := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				name := strings.ToLower(spec.(*ast.TypeSpec).Name.Name)
				if !slices.Contains(types[name], folder) {
					types[name] = append(types[name], folder)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return types
}

var quoted = regexp.MustCompile("`([^`]+)`")

// A type with the name of a term of the glossary is declared where the glossary says, and in all
// those places.
func TestGlossary(t *testing.T) {
	root := filepath.FromSlash(labtest.Root)
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	types := declaredTypes(t, root)
	said := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		term := strings.TrimSpace(cells[1])
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			said[term] = append(said[term], m[1])
		}
	}
	if len(said) < 10 {
		t.Fatalf("the glossary names packages for %d terms only", len(said))
	}
	for term, want := range said {
		got := types[strings.ReplaceAll(term, " ", "")]
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("types called %q are declared in %v; the glossary (docs/glossary.md) says in %v", term, got, want)
		}
	}
}
