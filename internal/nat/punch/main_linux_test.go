//go:build system

package punch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
)

// refused is why no lab can be built here, or nil. Tests that need none run anyway.
var refused error

func TestMain(m *testing.M) {
	if fuzzing() {
		refused = errors.New("no lab while fuzzing")
		os.Exit(m.Run())
	}
	if refused = lab.Enter(); refused != nil {
		fmt.Fprintln(os.Stderr, "tests that need a lab will fail:", refused)
	}
	os.Exit(m.Run())
}

// fuzzing reports whether this process fuzzes: its workers inherit descriptors,
// which do not pass through the lab's re-execution.
func fuzzing() bool {
	return slices.ContainsFunc(os.Args[1:], func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz=") })
}
