package npb

import (
	"fmt"
	"math/bits"
)

// PowerOfTwo returns an error that names the kernel unless ranks is a power of
// two of at most most, which is one itself. Kernels that halve their problem
// ask for that, as NPB's do.
func PowerOfTwo(kernel string, ranks, most int) error {
	if bits.OnesCount(uint(ranks)) == 1 && ranks <= most {
		return nil
	}
	below := min(1<<(bits.Len(uint(ranks))-1), most)
	return fmt.Errorf("%s: %d ranks: this class runs on a power of two of ranks, at most %d; start %d of them", kernel, ranks, most, below)
}
