//go:build system

package mpi

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	testload.Parallel(1)
	labtest.Main(m, map[string]func() error{doomKey: survive})
}
