package shm

import "testing"

func TestCrowded(t *testing.T) {
	one, two, both, far := CPUs{1}, CPUs{2}, CPUs{3}, CPUs{15: 1 << 63}
	for name, tc := range map[string]struct {
		own    CPUs
		others []CPUs
		want   bool
	}{
		"alone":                        {one, nil, false},
		"one each":                     {one, []CPUs{two, far}, false},
		"two on one":                   {one, []CPUs{one}, true},
		"two on two":                   {both, []CPUs{both}, false},
		"three on two":                 {both, []CPUs{both, both}, true},
		"two on two, another bound":    {both, []CPUs{both, far}, false},
		"two on two, a third on one":   {both, []CPUs{both, one}, true},
		"free beside two that are not": {CPUs{15}, []CPUs{one, two, {4}}, false},
		"unknown":                      {one, []CPUs{{}}, true},
		"own unknown":                  {CPUs{}, []CPUs{one, one}, false},
	} {
		if got := Crowded(tc.own, tc.others); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if far.Count() != 1 || both.Common(two) != 1 || both.Common(far) != 0 {
		t.Error("counted wrong")
	}
}
