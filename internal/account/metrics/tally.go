package metrics

import (
	"strings"
	"sync"
)

// maxTally bounds the names that a Tally distinguishes, so that untrusted names cannot use
// unbounded memory.
const maxTally = 10_000

// A Tally sums a value by names whose number grows with the grid, such as pairs of sites. Beyond
// 10,000 of them, values are summed under Other. The zero value is ready; it is safe for concurrent
// use.
type Tally struct {
	mu   sync.Mutex
	sums map[string]uint64 // by labels, joined by a zero byte
}

// Add adds n under the labels, as many as the family has.
func (t *Tally) Add(n uint64, labels ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sums == nil {
		t.sums = map[string]uint64{}
	}
	key := strings.Join(labels, "\x00")
	if _, known := t.sums[key]; !known && len(t.sums) >= maxTally {
		key = strings.Repeat(Other+"\x00", len(labels)-1) + Other
	}
	t.sums[key] += n
}

// Merge adds the sums of another Tally, which must not change meanwhile.
func (t *Tally) Merge(other *Tally) {
	for key, n := range other.sums {
		t.Add(n, strings.Split(key, "\x00")...)
	}
}

// Samples returns the sums.
func (t *Tally) Samples() []Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Sample, 0, len(t.sums))
	for key, n := range t.sums {
		all = append(all, Sample{Labels: strings.Split(key, "\x00"), Value: float64(n)})
	}
	return all
}

// Project returns the label for a project's name; without a project, a label that no project can
// have.
func Project(name string) string {
	if name == "" {
		return "-"
	}
	return name
}
