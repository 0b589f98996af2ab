package protocol

import "testing"

func TestSomeRanks(t *testing.T) {
	for want, n := range map[string]int{
		"rank 0 has": 1, "ranks 0, 1 have": 2, "ranks 0, 1, 2, 3, 4, 5, 6, 7 have": 8,
		"ranks 0, 1, 2, 3, 4, 5, 6, 7 and 55 others have": 63,
	} {
		ranks := make([]int, n)
		for i := range ranks {
			ranks[i] = i
		}
		if got := DescribeRanks(ranks); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
