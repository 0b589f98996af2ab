// Package npbtest has what the tests of all NAS kernels ask: the published values
// at many numbers of ranks, and the words of a refusal.
package npbtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Class is a class with the numbers of ranks at which it is verified. One that
// takes Long is run with the tag system only.
type Class struct {
	Name  npb.Class
	Ranks []int
	Long  bool
}

// Verify runs the classes, each of which must give so many check values, all right.
func Verify(t *testing.T, run kernel.Runner, checks int, classes ...Class) {
	for _, c := range classes {
		for _, n := range c.Ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", c.Name, n), func(t *testing.T) {
				if c.Long && !testload.Full() {
					t.Skip("it takes long: run it with the tag system")
				}
				mpilib.TestWorld(t, n, func(ctx context.Context, comm *mpilib.Comm) error {
					r, err := run(ctx, comm, c.Name)
					if err != nil {
						return err
					}
					return judge(r, c.Name, n, checks)
				})
			})
		}
	}
}

func judge(r npb.Result, c npb.Class, ranks, checks int) error {
	if r.Verified && len(r.Checks) == checks && r.Ranks == ranks && r.Class == c {
		return nil
	}
	var b strings.Builder
	r.WriteTo(&b)
	return fmt.Errorf("class %s, %d ranks, %d check values wanted: %s", c, ranks, checks, b.String())
}

// Refused runs a class that cannot be run by so many ranks, and wants the error to
// end with these words.
func Refused(t *testing.T, run kernel.Runner, c npb.Class, ranks int, want string) {
	t.Helper()
	mpilib.TestWorld(t, ranks, func(ctx context.Context, comm *mpilib.Comm) error {
		_, err := run(ctx, comm, c)
		if err == nil {
			return errors.New("no error")
		}
		if !strings.HasSuffix(err.Error(), want) {
			return fmt.Errorf("the error is %q, want %q", err, want)
		}
		return nil
	})
}
