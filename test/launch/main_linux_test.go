//go:build system

package launch

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	testload.Parallel(1)
	labtest.Main(m, map[string]func() error{mournKey: mourn, roundsKey: rounds, deathsKey: deaths, ringKey: ring, solveKey: solve, volatileKey: volatile, stepsKey: steps, tellKey: tell})
}
