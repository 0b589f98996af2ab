//go:build system

package paths

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	testload.Parallel(4) // they wait for half a minute at a time, and send little meanwhile
	labtest.Main(m, nil)
}
