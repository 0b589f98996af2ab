package faults

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// goodCell returns a cell without a fault, of a cut that leaves another path.
func goodCell() Cell {
	back := 1500.0
	return Cell{
		Technique: "direct", Cut: "drop", Hit: "kills", OtherPath: true, Bytes: 100, HashOK: true, StallMS: 900,
		Before: "direct", After: "relay through p1", End: "direct", BackMS: &back,
		want: 100, best: "direct", was: "direct", is: "direct",
	}
}

func TestJudge(t *testing.T) {
	late := 60001.0
	for _, c := range []struct {
		name   string
		change func(*Cell)
		fault  string // "": none
	}{
		{"good", func(*Cell) {}, ""},
		{"broken", func(c *Cell) { *c = Cell{Error: "no lab"} }, "no lab"},
		{"not on the best", func(c *Cell) { c.was = "relay" }, "was on relay before the cut"},
		{"changed", func(c *Cell) { c.HashOK = false }, "not what was sent"},
		{"named", func(c *Cell) { c.mismatch = "byte 7" }, "byte 7"},
		{"lost", func(c *Cell) { c.Lost = 3 }, "3 bytes are lost"},
		{"doubled", func(c *Cell) { c.Doubled = 4 }, "4 bytes came twice"},
		{"short", func(c *Cell) { c.Bytes = 99 }, "only 99 of 100"},
		{"stall", func(c *Cell) { c.StallMS = 1001 }, "a stall of 1001 ms"},
		{"a longer stall that is good", func(c *Cell) { c.StallMS, c.rtt = 3000, 250*time.Millisecond }, ""},
		{"stall without a path", func(c *Cell) { c.StallMS, c.OtherPath = 9000, false }, ""},
		{"never back", func(c *Cell) { c.BackMS, c.is = nil, "relay" }, "not back on direct 1m0s after it was there again, but on relay"},
		{"late", func(c *Cell) { c.BackMS = &late }, "back on direct only 60.0 s"},
		{"missed", func(c *Cell) { c.Hit, c.stayed = "misses", true }, ""},
		{"missed, but the link moved", func(c *Cell) { c.Hit = "misses" }, "left all carriers"},
		{"missed, but the carrier died", func(c *Cell) { c.Hit, c.broken = "misses", 1 }, "carriers of the stream broke (1)"},
		{"missed, but one of several died", func(c *Cell) { c.Hit, c.broken, c.stayed = "misses", 1, true }, "carriers of the stream broke (1)"},
		{"missed without other path, but a stall", func(c *Cell) { c.Hit, c.stayed, c.OtherPath, c.StallMS = "misses", true, false, 2000 }, "a stall"},
		{"perhaps, another carrier", func(c *Cell) { c.Hit = "perhaps" }, ""},
	} {
		cell := goodCell()
		c.change(&cell)
		cell.judge()
		switch {
		case cell.OK != (len(cell.Faults) == 0):
			t.Errorf("%s: ok: %v, faults %q", c.name, cell.OK, cell.Faults)
		case c.fault == "" && !cell.OK:
			t.Errorf("%s: faults %q", c.name, cell.Faults)
		case c.fault != "" && (len(cell.Faults) != 1 || !strings.Contains(cell.Faults[0], c.fault)):
			t.Errorf("%s: faults %q, want one with %q", c.name, cell.Faults, c.fault)
		}
	}
}

// Every key is in a cell's JSON, whatever its value.
func TestCellJSON(t *testing.T) {
	c := Cell{Error: "no lab"}
	c.judge()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{
		"technique", "cut", "hit", "other_path", "bytes", "hash_ok", "lost", "doubled", "stall_ms", "stall_max_ms",
		"gap_p99_ms", "before", "after", "end", "away_ms", "back_ms", "carriers", "connections", "mbit_s", "error", "faults", "ok",
	} {
		if _, ok := keys[k]; !ok {
			t.Errorf("no key %q in %s", k, text)
		}
	}
}

func TestTable(t *testing.T) {
	good, bad := goodCell(), goodCell()
	bad.Cut, bad.BackMS = "rst", nil
	good.judge()
	bad.judge()
	tab := &table{total: 2, w: io.Discard}
	tab.add(good)
	if err := tab.verdict(); err != nil {
		t.Errorf("all is good, but: %v", err)
	}
	tab.add(bad)
	if err := tab.verdict(); err == nil || !strings.Contains(err.Error(), "1 of 2 cells missed a target: direct/rst") {
		t.Errorf("verdict: %v", err)
	}
	var text strings.Builder
	if err := tab.text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAULT", "never", "0.90 s", "1 of 2 cells are good", "of 2."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestOptions(t *testing.T) {
	good := Options{Size: 1 << 20, Away: 1, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	ws, ks, err := good.chosen()
	if err != nil || len(ws) != 8 || len(ks) != 10 {
		t.Errorf("%d techniques and %d cuts are all (%v)", len(ws), len(ks), err)
	}
	for want, change := range map[string]func(*Options){
		"over before":            func(o *Options) { o.Size = 1 },
		"no time to be away":     func(o *Options) { o.Away = 0 },
		"nothing to do":          func(o *Options) { o.Repeat = 0 },
		`unknown technique "x"`:  func(o *Options) { o.Techniques = []string{"direct", "x"} },
		`unknown cut "scissors"`: func(o *Options) { o.Cuts = []string{"scissors"} },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v in place of %q", err, want)
		}
	}
}

// The effect of each cut on each technique, as a readable table.
func TestHits(t *testing.T) {
	want := map[string]string{
		"direct":            "proxy- rst+ drop+ gateway- address+ conntrack- policing+ mtu+ options+ uplink+",
		"port-range":        "proxy- rst+ drop+ gateway- address+ conntrack+ policing+ mtu+ options+ uplink+",
		"reversed":          "proxy- rst+ drop+ gateway- address+ conntrack+ policing+ mtu+ options+ uplink+",
		"simultaneous-open": "proxy- rst+ drop+ gateway- address+ conntrack? policing+ mtu+ options+ uplink+",
		"traversing":        "proxy- rst+ drop+ gateway- address+ conntrack- policing+ mtu+ options+ uplink+",
		"hole-punching":     "proxy- rst- drop+ gateway- address+ conntrack- policing+ mtu? options- uplink+",
		"relay":             "proxy+ rst+ drop+ gateway- address+ conntrack+ policing? mtu+ options+ uplink+",
		"gateway":           "proxy- rst+ drop+ gateway+ address+ conntrack? policing+ mtu+ options+ uplink+",
	}
	for _, w := range ways {
		var got []string
		for _, k := range cuts {
			got = append(got, k.name+map[hit]string{misses: "-", perhaps: "?", kills: "+"}[k.hits(w)])
		}
		if strings.Join(got, " ") != want[w.name] {
			t.Errorf("%s: %s, want %s", w.name, got, want[w.name])
		}
	}
	if !slices.Equal(Cuts(), []string{"proxy", "rst", "drop", "gateway", "address", "conntrack", "policing", "mtu", "options", "uplink"}) {
		t.Errorf("cuts: %v", Cuts())
	}
}

// A relay is as long as both of its legs.
func TestStallBound(t *testing.T) {
	for _, tc := range []struct {
		before, after string
		want          time.Duration
	}{
		{"direct", "direct", 1800 * time.Millisecond},
		{"direct", "relay through p1", 2600 * time.Millisecond},
		{"relay through p1", "hole-punching", 2600 * time.Millisecond},
	} {
		c := Cell{Before: tc.before, After: tc.after, rtt: 200 * time.Millisecond}
		if got := c.stallBound(); got != tc.want {
			t.Errorf("%s, %s: %v, want %v", tc.before, tc.after, got, tc.want)
		}
	}
}

func TestNth(t *testing.T) {
	if got := nth(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	if got := nth([]float64{1, 2, 3}, 0.99); got != 3 {
		t.Errorf("p99 of three: %v", got)
	}
}
