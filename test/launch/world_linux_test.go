//go:build system

package launch

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// world is labtest.World with the additional methods of this package's tests.
type world struct{ *labtest.World }

func newWorld(t *testing.T, sites string, cfg grid.Config) *world {
	t.Helper()
	return &world{labtest.NewWorld(t, sites, cfg)}
}

func newWorldOver(t *testing.T, wan, sites string, cfg grid.Config) *world {
	t.Helper()
	return &world{labtest.NewWorldOver(t, wan, sites, cfg)}
}
