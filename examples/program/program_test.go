package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// A world of one needs no launcher. The exit code tells help, mistakes and failures apart.
func TestExec(t *testing.T) {
	p := Program[string]{
		Name: "greet",
		Parse: func(args []string, stderr io.Writer) (name string, err error) {
			flags := flag.NewFlagSet("greet", flag.ContinueOnError)
			flags.SetOutput(stderr)
			flags.StringVar(&name, "name", "", "whom to greet")
			return name, flags.Parse(args)
		},
		Run: func(_ context.Context, comm *mpilib.Comm, name string, stdout io.Writer) error {
			if name == "" {
				return errors.New("nobody is there")
			}
			_, err := fmt.Fprintf(stdout, "rank %d of %d greets %s\n", comm.Rank(), comm.Size(), name)
			return err
		},
	}
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string // what is in them
	}{
		{"--name Ada", 0, "rank 0 of 1 greets Ada\n", ""},
		{"", 1, "", "greet: nobody is there\n"},
		{"--help", 0, "", "whom to greet"},
		{"--nam Ada", 2, "", "greet: flag provided but not defined: -nam\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := p.Exec(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		if code != tc.code || stdout.String() != tc.stdout || !strings.Contains(stderr.String(), tc.stderr) || tc.stderr == "" && stderr.Len() > 0 {
			t.Errorf("%q: code %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}
