package matrix

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// sample returns a small table with one fault, one cell that was tried twice and one that is
// missing.
func sample(t *testing.T) *table {
	t.Helper()
	tab := newTable(Options{Presets: []string{"open", "nat"}, RTT: 10 * time.Millisecond}, 3)
	tab.add(good(t, "open", "open", overlay.Direct))
	again := good(t, "open", "nat", overlay.Reversed)
	again.Tries = 2
	again.Reasons["relay"] = `<script>alert("x")</script>`
	tab.add(again)
	bad := good(t, "nat", "nat", overlay.Relay)
	bad.Predicted = overlay.SimultaneousOpen.String()
	tab.add(bad)
	return tab
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := sample(t).text(&b); err != nil {
		t.Fatal(err)
	}
	want := `3 pairs of 2 kinds of site, 10 ms round trip, privileged helpers; rows ask, columns are asked for

         1  2
 1 open  D  R
 2 nat      !

D  direct               1 pair, 20 ms (median)
R  reversed             1 pair, 20 ms (median)
!  not as it should be  1 pair, 20 ms (median)
3 of 3 pairs connected; a direct path exists for 3, and 2 have one; 1 needed more than one try; 0 packets to third parties
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestVerdict(t *testing.T) {
	err := sample(t).verdict()
	if err == nil || !strings.Contains(err.Error(), "1 of 3 pairs") || !strings.Contains(err.Error(), "nat -> nat: connected by relay") {
		t.Errorf("verdict: %v", err)
	}
	empty := newTable(Options{}, 0)
	if err := empty.verdict(); err != nil {
		t.Errorf("nothing is wrong with nothing: %v", err)
	}
}

// The page contains every cell with its reasons, refers to no other file, and escapes markup in
// text.
func TestHTML(t *testing.T) {
	var b strings.Builder
	if err := sample(t).html(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"open → nat: reversed", "&lt;script&gt;", `class="again right"`, "background: #1f8449", "hole-punching</dt>",
		"<em>connected by relay", "3 pairs of 2 kinds of site",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"<script>", "src=", "href=", "url(", "ZgotmplZ"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %q", no)
		}
	}
	if n := strings.Count(page, `<td tabindex`); n != 3 {
		t.Errorf("%d cells, want 3", n)
	}
}

// Every technique and the fault have a legend of their own, and text is readable on its color:
// contrast according to WCAG 2, 4.5 for text.
func TestLegends(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range legends {
		for _, key := range []string{l.name, l.mark, l.color} {
			if seen[key] {
				t.Errorf("%q stands for two things", key)
			}
			seen[key] = true
		}
		r, g, b := rgb(l.color)
		inkR, inkG, inkB := rgb(ink(l.color))
		if c := contrast(r, g, b, inkR, inkG, inkB); c < 4.5 {
			t.Errorf("%s: contrast %.1f", l.name, c)
		}
	}
	for _, tech := range overlay.Techniques() {
		if !seen[tech.String()] {
			t.Errorf("%v has no legend", tech)
		}
	}
}

func TestJSONKeys(t *testing.T) {
	text, err := json.Marshal(good(t, "open", "open", overlay.Direct))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"from", "to", "connected", "technique", "predicted", "direct_possible", "setup_ms", "proxy_bytes",
		"third_party_packets", "reasons", "error", "tries",
	}
	for _, k := range want {
		if _, ok := keys[k]; !ok {
			t.Errorf("no %q in %s", k, text)
		}
	}
	if len(keys) != len(want) {
		t.Errorf("%d keys, want %d: %s", len(keys), len(want), text)
	}
}

// A file that cannot be written is reported before anything is built.
func TestUnwritable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "nowhere", "grid.html")
	err := Run(t.Context(), Options{Presets: []string{"open"}, HTML: name, Out: io.Discard, Err: io.Discard})
	if !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestMeter(t *testing.T) {
	var b strings.Builder
	m := newMeter(&b, 100)
	for range 50 {
		m.next(Pair{"open", "nat"})
	}
	if b.Len() > 0 {
		t.Errorf("says at once: %q", b.String())
	}
	m.start = m.start.Add(-time.Minute)
	m.announceAt = m.start
	m.next(Pair{"open", "nat"})
	if want := "50/100 pairs, about 1m0s left  open -> nat\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
