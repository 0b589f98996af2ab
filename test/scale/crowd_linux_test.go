//go:build system

package scale

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Many ranks of one site dial as many of another at once: the broker decides once, receives hardly
// more requests for signalling than there are links, and all links come up, most of them by the
// best technique. On a busy machine the relay overtakes that one, and ranks try more than they
// should: a run with only this fault is repeated, and finally accepted.
func TestCrowd(t *testing.T) {
	labtest.NeedLab(t)
	for range 3 {
		stdout, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, "-lab"), "bench", "crowd", "--json", "--ranks", "40", "--nodes", "2"))
		if status != 0 {
			t.Fatalf("status %d:\n%s", status, stderr)
		}
		wrong, slow := readCrowd(t, stdout).complaints(40)
		if wrong != nil {
			t.Fatal(strings.Join(append(wrong, slow...), "\n"))
		}
		if slow == nil {
			return
		}
		t.Log(strings.Join(slow, "; "))
	}
}

// crowd has the figures of `isthmus-lab bench crowd` by cache, figure and technique:
// "cold links_by relay".
type crowd struct {
	figures map[string]float64
	missed  []string // targets
}

func readCrowd(t *testing.T, text string) crowd {
	t.Helper()
	c := crowd{figures: map[string]float64{}}
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var row struct {
			Figure string
			Params struct{ Cache, Technique string }
			Value  float64
			Target float64
			Met    *bool
		}
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			return c
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		name := strings.TrimSpace(row.Params.Cache + " " + row.Figure + " " + row.Params.Technique)
		c.figures[name] = row.Value
		if row.Met != nil && !*row.Met {
			c.missed = append(c.missed, fmt.Sprintf("%s: %v, want %v at most", name, row.Value, row.Target))
		}
	}
}

// complaints returns the faults of a crowd with the given number of ranks at each site: real ones,
// and those that a busy machine causes.
func (c crowd) complaints(ranks float64) (wrong, slow []string) {
	slow = c.missed
	for _, cache := range []string{"cold", "warm"} {
		f := func(name string) float64 { return c.figures[cache+" "+name] }
		if f("decisions") != 1 || f("signalling") < ranks || f("signalling") > 4*ranks || f("resolve_questions") > ranks || f("all_up") <= 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %v decisions, %v signalling requests, %v questions; up after %v ms",
				cache, f("decisions"), f("signalling"), f("resolve_questions"), f("all_up")))
		}
		var links float64
		for _, technique := range []string{"simultaneous-open", "traversing", "hole-punching", "relay"} {
			links += f("links_by " + technique)
		}
		says := fmt.Sprintf("%s: %v links, %v by simultaneous open", cache, links, f("links_by simultaneous-open"))
		switch best := f("links_by simultaneous-open"); {
		case links != ranks || best == 0:
			wrong = append(wrong, says)
		case best < ranks*3/4:
			slow = append(slow, says)
		}
	}
	return wrong, slow
}
