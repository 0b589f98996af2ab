package places

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestRoundTrip(t *testing.T) {
	a1, a2, b1 := overlay.NodeID{Site: "a", Name: "n1"}, overlay.NodeID{Site: "a", Name: "n2"}, overlay.NodeID{Site: "b.0_x-y", Name: "n1"}
	for text, nodes := range map[string][]overlay.NodeID{
		"a/n1:1":                           {a1},
		"a/n1:2,a/n2:1,b.0_x-y/n1:3":       {a1, a1, a2, b1, b1, b1},
		"a/n1:1,b.0_x-y/n1:1,a/n1:2":       {a1, b1, a1, a1}, // a profile may number them so
		"b.0_x-y/n1:1,a/n1:1,b.0_x-y/n1:1": {b1, a1, b1},
	} {
		if got := Text(nodes); got != text {
			t.Errorf("%v is written as %s, want %s", nodes, got, text)
		}
		if got, err := Parse(text, len(nodes)); err != nil || !slices.Equal(got, nodes) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, part := range map[string]string{
		"":                  "SITE/NODE:RANKS",
		"a/n1":              "SITE/NODE:RANKS",
		"a/n1:0":            "SITE/NODE:RANKS",
		"a/n1:-1":           "SITE/NODE:RANKS",
		"a/n1:2,a/n2:2":     "add up to the 3 ranks",
		"a/n1:2,":           "SITE/NODE:RANKS",
		"a/n1:2":            "2 ranks at all nodes, and 3",
		"n1:3":              "want NODE@SITE",
		"A/n1:3":            "allowed are a-z",
		"a/n1:99999999999":  "SITE/NODE:RANKS",
		"a/n1:2,a/n2:1,a:1": "add up to the 3 ranks",
	} {
		if got, err := Parse(text, 3); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is read as %v, %v; want an error with %q", text, got, err, part)
		}
	}
}

// A line that no process could be started with is left out, and not read.
func TestTooLong(t *testing.T) {
	var nodes []overlay.NodeID
	for Text(nodes) != "" || nodes == nil {
		nodes = append(nodes, overlay.NodeID{Site: "a", Name: fmt.Sprint(strings.Repeat("n", 50), len(nodes))})
	}
	if n := len(Text(nodes[1:])); n == 0 || n > MaxText {
		t.Errorf("one node less is a text of %d bytes", n)
	}
	if _, err := Parse(strings.Repeat("a/n1:1,", MaxText/7+1)+"a/n1:1", MaxText); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a/n1:2,a/n2:1", uint16(3))
	f.Fuzz(func(t *testing.T, text string, size uint16) {
		nodes, err := Parse(text, int(size))
		if err != nil {
			return
		}
		if again, err := Parse(Text(nodes), int(size)); err != nil || !slices.Equal(again, nodes) {
			t.Errorf("%q: %v, then %v, %v", text, nodes, again, err)
		}
	})
}
