package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// packages returns the folders with Go files of the main module.
func packages(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(labtest.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != labtest.Root {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
		}
		if !d.IsDir() && strings.HasSuffix(path, ".go") {
			folder, err := filepath.Rel(labtest.Root, filepath.Dir(path))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(folder)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The tree in docs/architecture.md has each package once, with a description, and nothing else.
func TestTree(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(labtest.Root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "## The tree\n")
	_, rest, fenced := strings.Cut(rest, "```\n")
	tree, _, closed := strings.Cut(rest, "```\n")
	if !ok || !fenced || !closed {
		t.Fatal("docs/architecture.md has no tree")
	}
	missing := packages(t)
	for line := range strings.Lines(tree) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case len(fields) == 1:
			t.Errorf("the tree says nothing of %s", fields[0])
		case !missing[fields[0]]:
			t.Errorf("the tree has %s, which is no package, or has it twice", fields[0])
		default:
			delete(missing, fields[0])
		}
	}
	for p := range missing {
		t.Errorf("the tree in docs/architecture.md lacks %s", p)
	}
}
