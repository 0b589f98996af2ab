package npb

import "testing"

func TestPowerOfTwo(t *testing.T) {
	for _, tt := range []struct {
		ranks, most int
		want        string
	}{
		{1, 1, ""},
		{2, 16, ""},
		{16, 16, ""},
		{3, 16, "mg: 3 ranks: this class runs on a power of two of ranks, at most 16; start 2 of them"},
		{12, 16, "mg: 12 ranks: this class runs on a power of two of ranks, at most 16; start 8 of them"},
		{64, 16, "mg: 64 ranks: this class runs on a power of two of ranks, at most 16; start 16 of them"},
	} {
		got := ""
		if err := PowerOfTwo("mg", tt.ranks, tt.most); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%d ranks of %d: %q, want %q", tt.ranks, tt.most, got, tt.want)
		}
	}
}
