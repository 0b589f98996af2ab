package link

import (
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/link/internal/leak"
)

// asProcess makes this program another process of a test, if it is to be that; nil: no test has any.
var asProcess func() (is bool, err error)

func TestMain(m *testing.M) {
	if asProcess != nil {
		if is, err := asProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		} else if is {
			return
		}
	}
	os.Exit(leak.Main(m))
}
