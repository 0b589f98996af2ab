package faults

import (
	"math"
	"time"
)

// A gap is an interval in which nothing arrived.
type gap struct {
	From   time.Time     `json:"from"`
	Length time.Duration `json:"length"`
}

func (g gap) to() time.Time { return g.From.Add(g.Length) }

// gaps are the intervals between reads of a stream. All are counted in classes of equal ratio, and
// the long ones are kept.
type gaps struct {
	last    time.Time
	classes [400]uint64 // from 1 ns on, each a tenth longer than the one before
	count   uint64
	long    []gap // since the last report
}

// longGap is the minimum length of a gap that is kept.
const longGap = 20 * time.Millisecond

// note counts a read at t.
func (g *gaps) note(t time.Time) {
	last := g.last
	g.last = t
	if last.IsZero() {
		return
	}
	d := max(t.Sub(last), 1)
	g.classes[min(int(math.Log(float64(d))/classRatio), len(g.classes)-1)]++
	g.count++
	if d >= longGap {
		g.long = append(g.long, gap{last, d})
	}
}

var classRatio = math.Log(1.1)

// quantile returns a time that a share q of the gaps do not exceed, with an accuracy of a tenth.
func (g *gaps) quantile(q float64) time.Duration {
	rest := uint64(math.Ceil(q * float64(g.count)))
	for i, n := range g.classes {
		if rest <= n && n > 0 {
			return time.Duration(math.Exp(float64(i+1) * classRatio))
		}
		rest -= min(n, rest)
	}
	return 0
}
