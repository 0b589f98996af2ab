package paper

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// mappingSeeds is with how many orders of the nodes each mapping is simulated. The result is the same every time,
// so --repeat does not count.
const mappingSeeds = 20

// coreSeconds are how long an iteration takes a core, which the article does not say. With the first, latencies are a
// small part of it; with the second, between clusters, they are longer than it.
var coreSeconds = []float64{1, 0.01}

// A mapper is an algorithm with its parameter.
type mapper struct {
	name string
	gain float64 // per cent in the article; 0: it is what the others are compared with
	of   func(p mapping.Problem, seed uint64) mapping.Map
}

func none(p mapping.Problem, _ uint64) mapping.Map { return mapping.InOrder(p) }
func sma(p mapping.Problem, _ uint64) mapping.Map  { return mapping.Simple(p) }

func aiacqm(f float64) func(mapping.Problem, uint64) mapping.Map {
	return func(p mapping.Problem, seed uint64) mapping.Map {
		return mapping.QuickMap(p, mapping.QuickMapOptions{Search: f, Seed: seed})
	}
}

func fec(delta float64) func(mapping.Problem, uint64) mapping.Map {
	return func(p mapping.Problem, _ uint64) mapping.Map { return mapping.EdgeCut(p, delta) }
}

// mapped is one of tables 2 to 5: gains are those of SMa, AIAC-QM and F-EC; each of the order gains more than the next.
func mapped(testbed mapping.Testbed, gains [3]float64, order ...string) func(Options, context.Context) ([]bench.Row, error) {
	mappers := []mapper{{"none", 0, none}, {"SMa", gains[0], sma}, {"AIAC-QM", gains[1], aiacqm(.5)}, {"F-EC", gains[2], fec(.5)}}
	return gainRows(testbed, mappers, func(gain map[string]float64, at string) (rows []bench.Row) {
		for i, better := range order[:len(order)-1] {
			more := gain[better] - gain[order[i+1]]
			rows = append(rows, verdict(claim(fmt.Sprintf("%s: %s gains more than %s", at, better, order[i+1]), "it does", more, "points"), more > 0))
		}
		return rows
	})
}

// parameters is table 6.
func parameters(testbed mapping.Testbed) func(Options, context.Context) ([]bench.Row, error) {
	mappers := []mapper{{"none", 0, none}, {"SMa", 30, sma}}
	for i, share := range []float64{.1, .5, .9} {
		mappers = append(mappers, mapper{fmt.Sprintf("AIAC-QM with f %g", share), []float64{30, 32, 30}[i], aiacqm(share)},
			mapper{fmt.Sprintf("F-EC with delta %g", share), []float64{40, 37, 45}[i], fec(share)})
	}
	return gainRows(testbed, mappers, parameterRows)
}

func parameterRows(gain map[string]float64, at string) []bench.Row {
	few, half, most := gain["AIAC-QM with f 0.1"], gain["AIAC-QM with f 0.5"], gain["AIAC-QM with f 0.9"]
	byF := max(few, half, most) - min(few, half, most)
	few, half, most = gain["F-EC with delta 0.1"], gain["F-EC with delta 0.5"], gain["F-EC with delta 0.9"]
	best, worst := most-max(few, half), min(few, most)-half
	return []bench.Row{
		between(claim(at+": f changes AIAC-QM's gain by", "2 points", byF, "points"), 0, 4),
		verdict(claim(at+": F-EC gains most with delta 0.9, more than otherwise by", "5 points", best, "points"), best > 0),
		verdict(claim(at+": and least with 0.5, less than otherwise by", "3 points", worst, "points"), worst > 0),
	}
}

// gainRows measures what mappings gain on a testbed, and what more follows from that.
func gainRows(testbed mapping.Testbed, mappers []mapper, further func(gain map[string]float64, at string) []bench.Row) func(Options, context.Context) ([]bench.Row, error) {
	return func(_ Options, ctx context.Context) (rows []bench.Row, err error) {
		for _, seconds := range coreSeconds {
			at, gain, none := fmt.Sprintf("%g s an iteration on a core", seconds), map[string]float64{}, 0.0
			for _, m := range mappers {
				s, err := simulated(ctx, testbed, seconds, m)
				if err != nil {
					return nil, err
				}
				if m.gain == 0 {
					none = s
					continue
				}
				gain[m.name] = 100 * (1 - s/none)
				rows = append(rows, verdict(claim(fmt.Sprintf("%s: gain of %s", at, m.name), fmt.Sprintf("%g %%", m.gain), gain[m.name], "%"), s < none))
			}
			rows = append(rows, further(gain, at)...)
		}
		return rows, nil
	}
}

// simulated returns the median time of asynchronous runs with a mapping.
func simulated(ctx context.Context, testbed mapping.Testbed, coreSeconds float64, m mapper) (float64, error) {
	var times []float64
	for seed := range uint64(mappingSeeds) {
		p := testbed.Problem(seed)
		for task := range p.Graph.Cost {
			p.Graph.Cost[task] = coreSeconds
		}
		run, err := mapping.Simulate(p, m.of(p, seed), mapping.SimulateOptions{Shift: .1, Tolerance: 1e-6, Seed: seed})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		times = append(times, run.Seconds)
	}
	return bench.Median(times), nil
}
