package reliability

import (
	"math"
	"testing"
)

func TestFailure(t *testing.T) {
	for _, c := range []struct {
		ranks, replicas int
		want            float64
	}{
		{40, 1, .736403}, {40, 2, .042102}, {40, 3, .001408},
		{64, 1, .881558}, {64, 2, .066508}, {64, 3, .002253},
	} {
		if got := Failure(c.ranks, c.replicas, 1, 30); math.Abs(got-c.want) > 5e-7 {
			t.Errorf("%d ranks, %d replicas: %.7f, want %.6f", c.ranks, c.replicas, got, c.want)
		}
	}
}

// Where the job is short, F is n (t/m)^r, far below what 1 - (1 - x) would leave of it.
func TestFailureOfShortJobs(t *testing.T) {
	for _, replicas := range []int{1, 2, 3, 4} {
		const x = 1e-9
		want := 1000 * math.Pow(x, float64(replicas))
		if got := Failure(1000, replicas, x, 1); math.Abs(got/want-1) > 1e-5 {
			t.Errorf("%d replicas: %g, want %g", replicas, got, want)
		}
	}
	for _, c := range []struct {
		ranks int
		time  float64
		want  float64
	}{{1, 0, 0}, {1 << 20, 1e6, 1}, {0, 1, 0}} {
		if got := Failure(c.ranks, 2, c.time, 1); got != c.want {
			t.Errorf("%d ranks for %g: %g, want %g", c.ranks, c.time, got, c.want)
		}
	}
}

// The mean time of ranks with two replicas each, (1 + 4^n/C(2n,n)) / 2n, is the integral of the probability to live.
func TestFailureFitsMeanTime(t *testing.T) {
	for _, ranks := range []int{1, 5, 40, 300} {
		const step = 1e-3
		sum := 0.0
		for x := step / 2; x < 40; x += step {
			sum += step * (1 - Failure(ranks, 2, x, 1))
		}
		inverse := 1.0 // 4^n/C(2n,n)
		for k := 1.0; k <= float64(ranks); k++ {
			inverse *= 2 * k / (2*k - 1)
		}
		if want := (1 + inverse) / float64(2*ranks); math.Abs(sum/want-1) > 1e-5 {
			t.Errorf("%d ranks: integral %g, want %g", ranks, sum, want)
		}
	}
}
