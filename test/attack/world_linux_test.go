//go:build system

package attack

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// world is labtest.World with additional methods for this package's tests.
type world struct{ *labtest.World }

func newWorld(t *testing.T, sites string, cfg grid.Config) *world {
	t.Helper()
	return &world{labtest.NewWorld(t, sites, cfg)}
}

// sub returns the same world for a part of the test.
func (w *world) sub(t *testing.T) *world { return &world{w.Sub(t)} }
