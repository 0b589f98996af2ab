package punch

import (
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/lab"
)

// refused is why no lab can be built here, or nil. Tests that need none run all
// the same.
var refused error

func TestMain(m *testing.M) {
	if refused = lab.Enter(); refused != nil {
		fmt.Fprintln(os.Stderr, "tests that need a lab will fail:", refused)
	}
	os.Exit(m.Run())
}
