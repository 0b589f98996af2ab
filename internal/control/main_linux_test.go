package control_test

import (
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/lab"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}
