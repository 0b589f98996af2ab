package test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Many ranks of one site dial as many of another at once: the broker decides
// once, is asked for hardly more introductions than there are links, and all
// links come up, most of them by the technique that is best.
func TestCrowd(t *testing.T) {
	needLab(t)
	stdout, stderr, status := run(t, exec.Command(isthmus(t, ""), "bench", "crowd", "--json", "--ranks", "40", "--nodes", "2"))
	if status != 0 {
		t.Fatalf("status %d:\n%s", status, stderr)
	}
	figures := map[string]float64{} // by cache, figure and technique
	for d := json.NewDecoder(strings.NewReader(stdout)); ; {
		var row struct {
			Figure string
			Params struct{ Cache, Technique string }
			Value  float64
			Target float64
			Met    *bool
		}
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, stdout)
		}
		if row.Met != nil && !*row.Met {
			t.Errorf("%s, %s: %v, want %v at most", row.Params.Cache, row.Figure, row.Value, row.Target)
		}
		figures[strings.TrimSpace(row.Params.Cache+" "+row.Figure+" "+row.Params.Technique)] += row.Value
	}
	for _, cache := range []string{"cold", "warm"} {
		if n := figures[cache+" decisions"]; n != 1 {
			t.Errorf("%s: %v decisions", cache, n)
		}
		best, rest := figures[cache+" links_by simultaneous-open"], figures[cache+" links_by hole-punching"]+figures[cache+" links_by relay"]
		if best+rest != 40 || best <= rest {
			t.Errorf("%s: %v links by simultaneous open and %v by others, want 40 and the first more", cache, best, rest)
		}
		if figures[cache+" all_up"] <= 0 || figures[cache+" resolve_questions"] > 40 {
			t.Errorf("%s: up after %v ms, with %v questions", cache, figures[cache+" all_up"], figures[cache+" resolve_questions"])
		}
	}
	if t.Failed() {
		t.Log(stdout)
	}
}
