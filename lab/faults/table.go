package faults

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A table holds the cells of a run.
type table struct {
	total int
	w     io.Writer // progress
	start time.Time
	cells []Cell
}

// announce prints which cell is next.
func (t *table) announce(w way, k cut) {
	fmt.Fprintf(t.w, "%d/%d cells after %v: %s, %s\n", len(t.cells), t.total, time.Since(t.start).Round(time.Second), w.name, k.name)
}

// add records a cell, and prints its faults at once.
func (t *table) add(c Cell) {
	t.cells = append(t.cells, c)
	for _, f := range c.Faults {
		fmt.Fprintf(t.w, "  FAULT %s, %s: %s\n", c.Technique, c.Cut, f)
	}
}

// text writes the table as text.
func (t *table) text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TECHNIQUE\tCUT\tVERDICT\tSTALL\tBACK\tLOST\tDOUBLED\tHASH\tCARRIERS\tBUSY\tAFTER THE CUT\tEND\tMbit/s")
	for _, c := range t.cells {
		verdict, hash, back := "good", "right", "never"
		if !c.OK {
			verdict = "FAULT"
		}
		if !c.HashOK {
			hash = "WRONG"
		}
		if c.BackMS != nil {
			back = seconds(*c.BackMS)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%d\t%.2f\t%s\t%s\t%.0f\n", c.Technique, c.Cut, verdict,
			seconds(c.StallMS), back, c.Lost, c.Doubled, hash, c.Carriers, c.Busy, c.After, c.End, c.Rate)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	stalls := t.stalls()
	_, err := fmt.Fprintf(w, "\n%d of %d cells are good. Stalls at a cut where a path was left: p50 %s, p99 %s, of %d.\n",
		t.good(), len(t.cells), seconds(nth(stalls, 0.5)), seconds(nth(stalls, 0.99)), len(stalls))
	return err
}

func seconds(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }

func (t *table) good() (n int) {
	for _, c := range t.cells {
		if c.OK {
			n++
		}
	}
	return n
}

// stalls returns those at cuts that left a path, the shortest first.
func (t *table) stalls() []float64 {
	var all []float64
	for _, c := range t.cells {
		if c.Error == "" && c.OtherPath && c.Hit != hitNames[misses] {
			all = append(all, c.StallMS)
		}
	}
	slices.Sort(all)
	return all
}

// nth returns the value that a share q of the sorted values do not exceed.
func nth(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// verdict returns nil if all cells are good, or names those that are not.
func (t *table) verdict() error {
	var bad []string
	for _, c := range t.cells {
		if !c.OK {
			bad = append(bad, c.Technique+"/"+c.Cut)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cells missed a target: %s", len(bad), len(t.cells), strings.Join(bad, ", "))
}
