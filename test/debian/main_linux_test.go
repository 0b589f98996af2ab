//go:build system

package debian

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	testload.Parallel(1) // the ranks of MPICH's library never let go of their processors
	labtest.Main(m, nil)
}
