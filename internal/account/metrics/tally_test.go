package metrics

import (
	"fmt"
	"slices"
	"testing"
)

func TestTally(t *testing.T) {
	var a, b Tally
	a.Add(3, "x", "y")
	a.Add(4, "x", "y")
	b.Add(5, "x", "z")
	b.Add(1, "x", "y")
	a.Merge(&b)
	got := map[string]float64{}
	for _, s := range a.Samples() {
		got[fmt.Sprint(s.Labels)] = s.Value
	}
	if len(got) != 2 || got["[x y]"] != 8 || got["[x z]"] != 5 {
		t.Errorf("sums are %v", got)
	}
	for i := range maxTally + 10 {
		b.Add(1, "site", fmt.Sprint(i))
	}
	samples := b.Samples()
	if len(samples) != maxTally+1 {
		t.Errorf("%d sums are kept, want %d and the rest", len(samples), maxTally)
	}
	i := slices.IndexFunc(samples, func(s Sample) bool { return slices.Equal(s.Labels, []string{Other, Other}) })
	if i < 0 || samples[i].Value != 12 { // two names were there already
		t.Errorf("the rest is %v", samples[max(i, 0)])
	}
}
