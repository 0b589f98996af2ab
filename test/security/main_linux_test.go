//go:build system

package security

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/store/storetest"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) {
	labtest.Main(m, map[string]func() error{movesKey: moves}, storetest.Fetch)
}
