package matrix

import (
	"fmt"
	"io"
	"os"
	"time"
)

// meter shows the progress of the run: on a terminal one line that changes, elsewhere a line at
// intervals.
type meter struct {
	w          io.Writer
	live       bool // w is a terminal
	total, n   int
	start      time.Time
	announceAt time.Time // of the next line elsewhere
}

// meterStep is the time between two lines if the output is not a terminal.
const meterStep = 15 * time.Second

func newMeter(w io.Writer, total int) *meter {
	m := &meter{w: w, total: total, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		m.live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	m.announceAt = m.start.Add(meterStep)
	return m
}

// say reports what is done between pairs.
func (m *meter) say(format string, args ...any) {
	if m.live {
		fmt.Fprintf(m.w, "\r"+format+"\x1b[K", args...)
	} else {
		fmt.Fprintf(m.w, format+"\n", args...)
	}
}

// next reports which pair is next.
func (m *meter) next(pair Pair) {
	now := time.Now()
	if m.live || now.After(m.announceAt) {
		m.announceAt = now.Add(meterStep)
		m.say("%d/%d pairs%s  %s -> %s", m.n, m.total, m.left(now), pair.From, pair.To)
	}
	m.n++
}

// left estimates the remaining time from the elapsed time.
func (m *meter) left(now time.Time) string {
	if m.n < 10 {
		return ""
	}
	rest := now.Sub(m.start) / time.Duration(m.n) * time.Duration(m.total-m.n)
	return fmt.Sprintf(", about %v left", rest.Round(time.Second))
}

func (m *meter) done() {
	m.say("%d pairs in %.1f s", m.n, time.Since(m.start).Seconds())
	if m.live {
		fmt.Fprintln(m.w)
	}
}
