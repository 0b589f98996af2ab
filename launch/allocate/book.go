package allocate

import "math/bits"

// Book returns how many hosts to ask for a job of n ranks in r copies each: one for every process,
// and floor(3 log2(n r)) more, because some will be dead or busy. Fewer hosts may exist, and may
// still suffice: a host can take several processes.
func Book(n, r int) int {
	if n < 1 || r < 1 || n > MaxProcesses || r > MaxProcesses || n*r > MaxProcesses {
		return 0
	}
	// floor(3 log2 x) is floor(log2 x^3), which needs no rounding: x is at most
	// 2^20, so x^3 fits.
	x := uint64(n * r)
	return int(x) + bits.Len64(x*x*x) - 1
}
