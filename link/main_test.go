package link

import (
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/link/internal/leak"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(suspendable); spec != "" {
		if err := beSuspendable(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(leak.Main(m))
}
