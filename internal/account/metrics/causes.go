package metrics

import (
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/wire"
)

// Causes counts failures by their class, the same words that errors have in
// logs. The zero value is ready; it is safe for concurrent use.
type Causes [wire.CodeNameTaken + 1]atomic.Uint64

// Note counts one failure. A class that this version does not know counts as
// refused, as wire.Code has it.
func (c *Causes) Note(code wire.Code) {
	if code == 0 || int(code) >= len(c) {
		code = wire.CodeRefused
	}
	c[code].Add(1)
}

// Put gives a family with one label the counts of all classes, those without a
// failure too: a series that is missing cannot be told from one that rests.
func (c *Causes) Put(w Writer, f *Family) {
	w.PutCauses(f, c[:])
}

// PutCauses gives a family with one label counts that are indexed by wire.Code,
// under the words of their errors; some codes share theirs.
func (w Writer) PutCauses(f *Family, counts []atomic.Uint64) {
	sums := map[string]uint64{}
	for code := wire.CodeRefused; int(code) < len(counts); code++ {
		sums[code.Err().Error()] += counts[code].Load()
	}
	PutAll(w, f, sums)
}
