package plan

import (
	"strings"
	"testing"
)

// Whatever is in a file of learned factors, each that is read is one by which a cost may be multiplied.
func FuzzReadLearned(f *testing.F) {
	for _, s := range []string{"bcast binomial 8 1.5\n", "# nothing\n\n", "bcast binomial 8 NaN", "bcast binomial -1 1", "bcast binomial 99999999999999999999 1", "bcast 8 1", "\xff \xff 1 1", strings.Repeat("x", 1<<17)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		learned, err := ReadLearned(strings.NewReader(s))
		if err != nil {
			return
		}
		for key, factor := range learned {
			if !(factor >= 1e-3 && factor <= 1e3) {
				t.Errorf("%q: %v", key, factor)
			}
		}
	})
}
