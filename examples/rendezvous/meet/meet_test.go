package meet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestArguments(t *testing.T) {
	for words, want := range map[string]string{
		"":                        "give either --serve NAME or --join NAME",
		"--serve x --join x":      "give either --serve NAME or --join NAME",
		"--serve x --times 0":     "--times 0: want at least 1",
		"--join x --wait -1s":     "--wait -1s: want 0 or more",
		"--serve x more":          `unexpected argument "more"; see rendezvous --help`,
		"--serve x --times 3":     "",
		"--join x --wait 0":       "",
		"--join calc --wait 2m5s": "",
	} {
		_, err := parse(strings.Fields(words), io.Discard)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, want %q", words, err, want)
		}
	}
}

// Two halves of one job stand for two jobs.
func TestMeet(t *testing.T) {
	for _, sizes := range [][2]int{{1, 1}, {1, 3}, {3, 2}} {
		var out [2]bytes.Buffer
		mpilib.TestWorld(t, sizes[0]+sizes[1], func(ctx context.Context, c *mpilib.Comm) error {
			side, leader := 0, sizes[0]
			if c.Rank() >= sizes[0] {
				side, leader = 1, 0
			}
			half, err := c.Split(ctx, side, 0)
			if err != nil {
				return err
			}
			inter, err := mpilib.IntercommCreate(ctx, half, 0, c, leader, 0)
			if err != nil {
				return err
			}
			return meet(ctx, inter, []string{"accepted", "connected to"}[side], &out[side])
		})
		n := sizes[0] + sizes[1]
		for side, how := range []string{"accepted", "connected to"} {
			greeted := (sizes[1-side] + sizes[side] - 1) / sizes[side]
			want := fmt.Sprintf("%s a job of %d; %d greeted me; the ranks of all %d add up to %d\n", how, sizes[1-side], greeted, n, n*(n-1)/2)
			if out[side].String() != want {
				t.Errorf("%q, want %q", out[side].String(), want)
			}
		}
	}
}
