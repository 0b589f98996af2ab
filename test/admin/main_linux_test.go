//go:build system

package admin

import (
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m, nil) }
