package mpilib

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// MPI-4.1, section 9.3: with errors fatal, a failed call ends the process and reports what failed.
func TestErrorsAreFatal(t *testing.T) {
	const child = "MPILIB_TEST_FATAL"
	if os.Getenv(child) != "" {
		TestWorld(t, 1, func(ctx context.Context, c *Comm) error {
			c.SetErrorHandler(ErrorsAreFatal)
			Send(ctx, c, []int{1}, 4, 0)
			return errors.New("the process went on")
		})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := testkit.ShortDir(t)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestErrorsAreFatal$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+dir)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(complaint.String(), "fatal error on world, rank 0: mpilib: rank 0: send to rank 4 of world, tag 0: no such rank") {
		t.Errorf("%v\n%s%s", err, &out, &complaint)
	}
}

// A handler may hide an error, and may be called by the program.
func TestErrorHandlerResult(t *testing.T) {
	TestWorld(t, 1, func(ctx context.Context, c *Comm) error {
		mine := errors.New("mine")
		c.SetErrorHandler(func(*Comm, error) error { return nil })
		if err := errors.Join(Send(ctx, c, []int{1}, 4, 0), c.CallErrorHandler(mine)); err != nil {
			return err
		}
		c.SetErrorHandler(ErrorsReturn)
		return expect(c.CallErrorHandler(mine), mine)
	})
}
