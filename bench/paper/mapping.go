package paper

import (
	"context"
	"fmt"
	"maps"

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
	gain float64 // per cent in the article
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

// at begins the claims about runs with such iterations.
func at(coreSeconds float64) string { return fmt.Sprintf("%g s an iteration on a core: ", coreSeconds) }

// mapped is one of tables 2 to 5: gains are those of SMa, AIAC-QM and F-EC; each of the order gains more than the next.
func mapped(number int, testbed mapping.Testbed, gains [3]float64, order ...string) experiment {
	mappers := []mapper{{"SMa", gains[0], sma}, {"AIAC-QM", gains[1], aiacqm(.5)}, {"F-EC", gains[2], fec(.5)}}
	e := gained(number, testbed, mappers)
	for _, seconds := range coreSeconds {
		for i, better := range order[:len(order)-1] {
			worse := order[i+1]
			e.claims = append(e.claims, claim{at(seconds) + better + " over " + worse, fmt.Sprintf("%s%s gains more than %s", at(seconds), better, worse), "it does", "points", some, inf, orders[better+" over "+worse]})
		}
	}
	e.measure = func(_ Options, ctx context.Context) (measured, error) {
		of, err := simulate(ctx, testbed, mappers)
		for _, seconds := range coreSeconds {
			for i, better := range order[:len(order)-1] {
				worse := order[i+1]
				of[at(seconds)+better+" over "+worse] = of[at(seconds)+better] - of[at(seconds)+worse]
			}
		}
		return measured{figures: of}, err
	}
	return e
}

// byPower says why what the tables show is not so in the simulation.
const byPower = "where latencies are a small part of an iteration, a mapping that keeps neighbours together without regard to power is slower than none: the slowest tasks set the pace, and one among slow neighbours always has older values than one among fast ones"

var orders = map[string]string{
	"F-EC over AIAC-QM": "explained neither by the article's model nor by the simulation: F-EC cuts few edges, and knows nothing of power",
	"AIAC-QM over SMa":  "with 128 tasks a band in order of its rows has few edges between clusters, and AIAC-QM gives some of them up for power",
	"SMa over F-EC":     "with 128 tasks in a band F-EC cuts the same edges as SMa",
}

// sizes is table 1: with so many tasks a system of more rows has fewer edges. The article does not say how many tasks there were.
func sizes(testbed mapping.Testbed) experiment {
	larger := testbed
	larger.Rows = 5_000_000
	e := experiment{name: "jace-table-1", paper: jace, item: "table 1", minutes: .05, size: simulatedOn + "; 64 tasks"}
	for _, seconds := range coreSeconds {
		e.claims = append(e.claims,
			claim{at(seconds) + "550000", at(seconds) + "gain of SMa with 550000 rows", "31 %", "%", some, 100, byPower},
			claim{at(seconds) + "5000000", at(seconds) + "gain of SMa with 5000000 rows", "37 %", "%", some, 100, byPower},
			claim{at(seconds) + "growth", at(seconds) + "with more rows it gains more", "6 points", "points", some, inf, fewerEdges})
	}
	e.measure = func(_ Options, ctx context.Context) (measured, error) {
		small, err := simulate(ctx, testbed, []mapper{{"550000", 31, sma}})
		if err != nil {
			return measured{}, err
		}
		large, err := simulate(ctx, larger, []mapper{{"5000000", 37, sma}})
		maps.Copy(large, small)
		for _, seconds := range coreSeconds {
			large[at(seconds)+"growth"] = large[at(seconds)+"5000000"] - large[at(seconds)+"550000"]
		}
		return measured{figures: large}, err
	}
	return e
}

// fewerEdges is why more rows need not gain more.
const fewerEdges = "with as many tasks, each has the more rows, of which the same band reaches fewer neighbours: what a mapping can keep together is less"

// simulatedOn is what is otherwise in all tables of the article on JaceP2P-V2.
const simulatedOn = "simulated, with clusters, latencies and lengths of iterations that the article does not say"

// parameters is table 6.
func parameters(testbed mapping.Testbed) experiment {
	mappers := []mapper{{"SMa", 30, sma}}
	for i, share := range []float64{.1, .5, .9} {
		mappers = append(mappers, mapper{fmt.Sprintf("AIAC-QM with f %g", share), []float64{30, 32, 30}[i], aiacqm(share)},
			mapper{fmt.Sprintf("F-EC with delta %g", share), []float64{40, 37, 45}[i], fec(share)})
	}
	const cuts = "F-EC leaves the more places empty the greater delta is: of 64 tasks in a band it cuts 30, 42 and 60 edges with .1, .5 and .9"
	e := gained(6, testbed, mappers)
	for _, seconds := range coreSeconds {
		e.claims = append(e.claims,
			claim{at(seconds) + "f", at(seconds) + "f changes AIAC-QM's gain by", "2 points", "points", 0, 4, "the nodes that it looks at are drawn, and on some of them fewer edges leave the cluster"},
			claim{at(seconds) + "best", at(seconds) + "F-EC gains most with delta 0.9, more than otherwise by", "5 points", "points", some, inf, cuts},
			claim{at(seconds) + "worst", at(seconds) + "and least with 0.5, less than otherwise by", "3 points", "points", some, inf, cuts})
	}
	e.measure = func(_ Options, ctx context.Context) (measured, error) {
		of, err := simulate(ctx, testbed, mappers)
		for _, seconds := range coreSeconds {
			ofParameters(of, at(seconds))
		}
		return measured{figures: of}, err
	}
	return e
}

// ofParameters adds what table 6 says of the gains with each parameter.
func ofParameters(of figures, at string) {
	few, half, most := of[at+"AIAC-QM with f 0.1"], of[at+"AIAC-QM with f 0.5"], of[at+"AIAC-QM with f 0.9"]
	of[at+"f"] = max(few, half, most) - min(few, half, most)
	few, half, most = of[at+"F-EC with delta 0.1"], of[at+"F-EC with delta 0.5"], of[at+"F-EC with delta 0.9"]
	of[at+"best"], of[at+"worst"] = most-max(few, half), min(few, most)-half
}

// gained returns the experiment of a table, with the claims that each mapping gains.
func gained(number int, testbed mapping.Testbed, mappers []mapper) experiment {
	e := experiment{name: fmt.Sprintf("jace-table-%d", number), paper: jace, item: fmt.Sprintf("table %d", number), minutes: .05,
		size: simulatedOn}
	for _, seconds := range coreSeconds {
		for _, m := range mappers {
			e.claims = append(e.claims, claim{at(seconds) + m.name, fmt.Sprintf("%sgain of %s", at(seconds), m.name), fmt.Sprintf("%g %%", m.gain), "%", some, 100, byPower})
		}
	}
	return e
}

// simulate returns what each mapping gains on a testbed, in per cent.
func simulate(ctx context.Context, testbed mapping.Testbed, mappers []mapper) (figures, error) {
	of := figures{}
	for _, seconds := range coreSeconds {
		without, err := simulated(ctx, testbed, seconds, mapper{of: none})
		if err != nil {
			return of, err
		}
		for _, m := range mappers {
			s, err := simulated(ctx, testbed, seconds, m)
			if err != nil {
				return of, err
			}
			of[at(seconds)+m.name] = 100 * (1 - s/without)
		}
	}
	return of, nil
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
