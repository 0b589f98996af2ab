package test

import (
	"os"
	"path/filepath"
	"testing"
)

const Module = "github.com/isthmus-grid/isthmus"

func ReadFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
