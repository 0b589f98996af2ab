package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/matrix"
)

func TestPresetList(t *testing.T) {
	all := lab.Presets()
	half := len(all) / 2
	for text, want := range map[string][]string{
		"nat,open,nat":     {"nat", "open"},
		"all":              all,
		"plain":            all[:half],
		"no-route":         all[half:],
		"no-route/nat,all": append([]string{"no-route/nat"}, slices.DeleteFunc(slices.Clone(all), func(p string) bool { return p == "no-route/nat" })...),
	} {
		got, err := presetList(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestPairList(t *testing.T) {
	got, err := pairList("open:nat,no-route/nat:open")
	if want := []matrix.Pair{{From: "open", To: "nat"}, {From: "no-route/nat", To: "open"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := pairList(""); got != nil || err != nil {
		t.Errorf("no pairs: %v, %v", got, err)
	}
}

func TestHavingIPv6(t *testing.T) {
	all := lab.Presets()
	got, err := havingIPv6(slices.Clone(all), []matrix.Pair{{From: "open", To: "nat-ipv6"}})
	want := slices.DeleteFunc(all, func(p string) bool {
		return strings.Contains(p, "nat") && !strings.HasSuffix(p, "-ipv6")
	})
	if err != nil || !slices.Equal(got, want) || len(want) != 34 {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestMatrixMistakes(t *testing.T) {
	for _, tc := range []struct {
		words []string
		text  string
	}{
		{[]string{"matrix", "--presets", "moat"}, `matrix: unknown preset "moat"; known are open,`},
		{[]string{"matrix", "--presets", ""}, `matrix: unknown preset ""`},
		{[]string{"matrix", "--pairs", "open"}, `matrix: pair "open": want FROM:TO`},
		{[]string{"matrix", "--pairs", "open:moat"}, `matrix: unknown preset "moat"`},
		{[]string{"matrix", "--ipv6", "--pairs", "open:nat"}, `matrix: preset "nat" has a NAT and therefore no IPv6`},
		{[]string{"matrix", "--ipv6", "--presets", "nat,nat-1to1"}, "matrix: none of these presets has IPv6: all have a NAT"},
		{[]string{"matrix", "--ipv6", "--dual-stack"}, "matrix: --ipv6 has no broker with both versions of IP"},
		{[]string{"matrix", "now"}, `matrix: "now" is not expected here`},
		{[]string{"bench", "crowd", "--ranks", "3"}, "bench crowd: 3 ranks at a site of 4 nodes"},
		{[]string{"bench", "crowd", "--to", "moat"}, `bench crowd: unknown preset "moat"`},
	} {
		r := isthmusLab(t, t.TempDir(), tc.words...)
		if !strings.HasPrefix(r.stderr, "isthmus-lab: "+tc.text) || r.status != 2 || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%q: status %d, %q; want 2, %q", tc.words, r.status, r.stderr, tc.text)
		}
	}
}
