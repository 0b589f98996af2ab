//go:build system

package control_test

import (
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}
