package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// declared returns the names of a file's types, or of all that it declares: types, functions,
// methods, fields, and the constants and variables of the package.
func declared(file *ast.File, typesOnly bool) (names []*ast.Ident) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if !typesOnly {
				names = append(names, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					names = append(names, spec.Name)
				}
				if spec, ok := spec.(*ast.ValueSpec); ok && !typesOnly {
					names = append(names, spec.Names...)
				}
			}
		}
	}
	if !typesOnly {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					names = append(names, f.Names...)
				}
			}
			if i, ok := n.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					names = append(names, m.Names...)
				}
			}
			return true
		})
	}
	return names
}

// declarations returns, for each name in lower case, the folders whose packages declare it.
func declarations(t *testing.T, typesOnly bool) map[string][]string {
	t.Helper()
	folders := map[string][]string{}
	for _, s := range sources(t) {
		for _, id := range declared(s.file, typesOnly) {
			if name := strings.ToLower(id.Name); !slices.Contains(folders[name], s.folder) {
				folders[name] = append(folders[name], s.folder)
			}
		}
	}
	return folders
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
	types := declarations(t, true)
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

// avoided reads the table of words that are not names: by word, the folders that may still use it.
func avoided(page string) map[string][]string {
	_, section, _ := strings.Cut(page, "\n## Words that are not names\n")
	words := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "words" {
			continue
		}
		var folders []string
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			folders = append(folders, m[1])
		}
		for word := range strings.SplitSeq(cells[1], ",") {
			words[strings.TrimSpace(word)] = folders
		}
	}
	return words
}

// misnamed lists the declarations that have a word as their name which the glossary avoids.
func misnamed(declarations, avoided map[string][]string) (all []string) {
	for word, allowed := range avoided {
		for _, folder := range declarations[word] {
			if !slices.Contains(allowed, folder) {
				all = append(all, fmt.Sprintf("%s declares %q, which is no name for a thing or an act; see docs/glossary.md for what to say instead", folder, word))
			}
		}
	}
	slices.Sort(all)
	return all
}

// No type, function, field, constant or variable of a package has a name that the glossary avoids,
// except in the packages that it lists.
func TestNames(t *testing.T) {
	words := avoided(labtest.ReadFile(t, "docs/glossary.md"))
	if len(words) < 20 {
		t.Fatalf("the glossary avoids %d words only", len(words))
	}
	for _, complaint := range misnamed(declarations(t, false), words) {
		t.Error(complaint)
	}
}

// The rule must be able to complain, of everything that has a name.
func TestNameRulesComplain(t *testing.T) {
	const page = "text\n## Words that are not names\n\n| words | instead | still in |\n|---|---|---|\n| slate, lane | ring | `a/b` |\n"
	for source, want := range map[string]string{
		"type Slate int":                       `c declares "slate"`,
		"func lane() {}":                       `c declares "lane"`,
		"type t int; func (t) Lane() {}":       `c declares "lane"`,
		"type t struct{ x struct{ lane int }}": `c declares "lane"`,
		"type t interface{ Slate() }":          `c declares "slate"`,
		"const slate = 1":                      `c declares "slate"`,
		"var x, lane = 1, 2":                   `c declares "lane"`,
		"func f() { lane := 1; _ = lane }":     "",
		"func fullLane() {}":                   "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{"c", "a/b"} {
			found := map[string][]string{}
			for _, id := range declared(file, false) {
				found[strings.ToLower(id.Name)] = []string{folder}
			}
			got := strings.Join(misnamed(found, avoided(page)), "\n")
			if folder == "a/b" && got != "" || folder == "c" && (want == "") != (got == "") || !strings.Contains(got, want) && folder == "c" {
				t.Errorf("%s in %s: complaint %q, want %q", source, folder, got, want)
			}
		}
	}
}
