//go:build system

package upgrade

import (
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m, nil) }
