package metrics

import (
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/wire"
)

// Causes counts failures by their class, under the text that errors have in logs. The zero value is
// ready; it is safe for concurrent use.
type Causes [wire.CodeNameTaken + 1]atomic.Uint64

// Note counts one failure. A class that this version does not know counts as refused, as in
// wire.Code.
func (c *Causes) Note(code wire.Code) {
	if code == 0 || int(code) >= len(c) {
		code = wire.CodeRefused
	}
	c[code].Add(1)
}

// Put adds the counts of all classes to a family with one label, including those without a failure:
// a missing series could not be distinguished from a constant one.
func (c *Causes) Put(w Writer, f *Family) {
	w.PutCauses(f, c[:])
}

// PutCauses adds counts that are indexed by wire.Code to a family with one label, under the texts
// of their errors; some codes share a text.
func (w Writer) PutCauses(f *Family, counts []atomic.Uint64) {
	sums := map[string]uint64{}
	for code := wire.CodeRefused; int(code) < len(counts); code++ {
		sums[code.Err().Error()] += counts[code].Load()
	}
	PutAll(w, f, sums)
}
