package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	mixedCase = regexp.MustCompile(`(?:^|[^\w/.%-])([a-z][a-z0-9]*[A-Z]\w*)`)
	word      = regexp.MustCompile(`\w+`)
	firstWord = regexp.MustCompile(`^(?:(?:An?|The) )?([\w-]+)`)
	// saysOf is how a comment says what a name is, and thereby which one.
	saysOf = regexp.MustCompile(`^(\w+) (?:is|are|means|reports|returns|receives|says)\b`)
)

// notNames have the form of names of variables, and are none.
var notNames = []string{"gRPC", "macOS", "kB"}

// misleading lists the comments of a file that name what is not there: those of declarations that begin with another name,
// and those with a name in mixed case that the package does not use.
func misleading(folder string, file *ast.File, used map[string]bool) (all []string) {
	if ast.IsGenerated(file) {
		return nil
	}
	check := func(doc *ast.CommentGroup, strict bool, names ...*ast.Ident) {
		text := doc.Text() // without directives
		if len(names) == 0 || text == "" || strings.HasPrefix(text, "Deprecated:") {
			return
		}
		begins := func(form *regexp.Regexp) bool {
			m := form.FindStringSubmatch(text)
			return m != nil && slices.ContainsFunc(names, func(id *ast.Ident) bool { return id.Name == m[1] || folder == "collectives" && titles(m[1], id.Name) })
		}
		if strict && !begins(firstWord) || !strict && saysOf.MatchString(text) && !begins(saysOf) {
			all = append(all, fmt.Sprintf("%s: the comment of %s begins with another word: %.60q", folder, names[0].Name, text))
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			check(d.Doc, true, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					check(docOf(d, s.Doc), !d.Lparen.IsValid(), s.Names...)
				case *ast.TypeSpec:
					check(docOf(d, s.Doc), !d.Lparen.IsValid(), s.Name)
					switch body := s.Type.(type) {
					case *ast.StructType:
						for _, f := range body.Fields.List {
							check(f.Doc, false, f.Names...) // it may be of several fields
						}
					case *ast.InterfaceType:
						for _, m := range body.Methods.List {
							check(m.Doc, true, m.Names...)
						}
					}
				}
			}
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//") { // C for cgo
				continue
			}
			for _, m := range mixedCase.FindAllStringSubmatch(c.Text[2:], -1) {
				if !used[m[1]] && !slices.Contains(notNames, m[1]) {
					all = append(all, fmt.Sprintf("%s: a comment names %s, which the package does not use: %.60q", folder, m[1], c.Text))
				}
			}
		}
	}
	return all
}

// docOf returns the comment of a declaration: that of a group with parentheses is not one of what is in it.
func docOf(d *ast.GenDecl, own *ast.CommentGroup) *ast.CommentGroup {
	if d.Lparen.IsValid() {
		return own
	}
	return d.Doc
}

// titles reports whether a word begins the title of an algorithm, "Full-lane broadcast: ..." at bcastFullLane.
func titles(word, name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(strings.ReplaceAll(word, "-", "")))
}

// addUsed adds the words of a file outside of its comments.
func addUsed(used map[string]bool, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.Ident:
			used[n.Name] = true
		case *ast.BasicLit:
			for _, w := range word.FindAllString(n.Value, -1) {
				used[w] = true
			}
		}
		return true
	})
}

// A comment names what it stands at, and nothing that is gone.
func TestComments(t *testing.T) {
	used := map[string]map[string]bool{}
	for _, s := range sources(t) {
		if used[s.folder] == nil {
			used[s.folder] = map[string]bool{}
		}
		addUsed(used[s.folder], s.file)
	}
	for _, s := range sources(t) {
		for _, complaint := range misleading(s.folder, s.file, used[s.folder]) {
			t.Error(complaint)
		}
	}
}

// The rule must be able to complain.
func TestCommentRulesComplain(t *testing.T) {
	for source, want := range map[string]string{
		"// gone does it.\nfunc f() {}":                                 "the comment of f begins",
		"// gone does it.\nfunc (t) f() {}":                             "the comment of f begins",
		"// A gone is one.\ntype t int":                                 "the comment of t begins",
		"// gone is one.\nvar x, y int":                                 "the comment of x begins",
		"// Gone is called.\ntype t interface {\n// Gone ends.\nF()\n}": "the comment of F begins",
		"// t is.\ntype t struct {\n// Gone reports it.\nF bool\n}":     "the comment of F begins",
		"const (\n// gone is one.\nx = 1\n)":                            "the comment of x begins",
		"// f calls goneBy.\nfunc f() {}":                               "a comment names goneBy",
		"func f() {\n\t_ = 1 // goneBy\n}":                              "a comment names goneBy",

		"// f does it.\nfunc f() {}":                                 "",
		"// f's.\nfunc f() {}":                                       "",
		"// The t is one.\ntype t int":                               "",
		"// y and x are two.\nvar x, y int":                          "",
		"// Deprecated: no.\nfunc f() {}":                            "",
		"//go:noinline\nfunc f() {}":                                 "",
		"// Bounds.\nconst (\n// Of time.\nx = 1\n)":                 "",
		"// t is.\ntype t struct {\n// Of the reader.\nF, G bool\n}": "",
		"// f calls byName over gRPC.\nfunc f() { byName() }":        "",
		"// Code generated by x. DO NOT EDIT.\n\n// g.\nfunc f() {}": "",
	} {
		text := "package x\n" + source
		if strings.HasPrefix(source, "// Code") {
			text = strings.Replace(source, "\n\n", "\n\npackage x\n\n", 1)
		}
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]bool{}
		addUsed(used, file)
		if got := strings.Join(misleading("x", file, used), "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\ncomplaint %q, want %q", source, got, want)
		}
	}
}
