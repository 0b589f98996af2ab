//go:build system

package doctor

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	testload.Parallel(3) // a run of the doctor takes two seconds, most of which it waits
	labtest.Main(m, nil)
}
