package labtest

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	// Module is the path of the suite's module.
	Module = "github.com/isthmus-grid/isthmus"
	// Root is the repository's folder, relative to a package below test/, where go test runs its
	// tests.
	Root = "../.."
)

// ReadFile returns a file of the repository.
func ReadFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
