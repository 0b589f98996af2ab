package mapping

import (
	"slices"
	"testing"
)

// The article's numbers of nodes and cores.
func TestTestbeds(t *testing.T) {
	for i, want := range [][2]float64{{113, 440}, {213, 840}, {112, 394}, {212, 754}, {122, 506}, {102, 320}} {
		p := Testbeds[i].Problem(1)
		cores := 0.0
		for _, power := range p.Nodes.Power {
			cores += power
		}
		if got := [2]float64{float64(len(p.Nodes.Power)), cores}; got != want || p.Check() != nil {
			t.Errorf("%s: %v nodes and cores, want %v; %v", Testbeds[i].Name, got, want, p.Check())
		}
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// The order of the algorithms by the medians of the model's time. It does not say what the article found for fec,
// which is only printed.
func TestOrderOfTheAlgorithms(t *testing.T) {
	for _, b := range Testbeds[:4] {
		times, cuts := map[string][]float64{}, map[string][]float64{}
		for seed := range uint64(20) {
			p := b.Problem(seed)
			for name, m := range map[string]Map{
				"none": InOrder(p), "sma": Simple(p), "aiacqm": QuickMap(p, QuickMapOptions{Search: .5, Seed: seed}),
				"fec": EdgeCut(p, .5), "auto": Search(p, seed),
			} {
				times[name], cuts[name] = append(times[name], p.Time(m)), append(cuts[name], p.Cut(m))
			}
		}
		row := map[string]float64{}
		for _, name := range []string{"none", "sma", "aiacqm", "fec", "auto"} {
			row[name] = median(times[name])
			t.Logf("%s %-6s time %.4f, %.0f %% of none, cut %g", b.Name, name, row[name], 100*row[name]/row["none"], median(cuts[name]))
		}
		if row["auto"] > row["aiacqm"] || row["aiacqm"] > row["sma"] || row["sma"] > row["none"] {
			t.Errorf("%s: the order is not auto, aiacqm, sma, none", b.Name)
		}
	}
}
