//go:build system

package scale

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
