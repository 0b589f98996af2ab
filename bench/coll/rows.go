package coll

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// A series is the times of one implementation.
type series struct {
	name    string // "isthmus", "mpich"
	variant        // of our implementation
	took    []float64
	late    []float64 // ms, by rounds
	version string
}

func (m *series) ours() bool { return m.name == nameOurs }

// chosen reports whether it is ours with its own choice of algorithms.
func (m *series) chosen() bool { return m.ours() && len(m.forced) == 0 }

// Targets.
const (
	maxOverBound = 1.3                  // of large messages
	maxBehind    = 2 * time.Millisecond // the bound, of small messages
	large        = 64 * kib
	small        = kib
	maxOverBest  = 1.1 // the best of our algorithms
	maxOverHAN   = 1.0
	maxOverPeer  = 0.5 // the best peer, at four sites, where a call is bound by latency
	maxOverLocal = 1.2 // the best peer, within a site
)

// unit returns the unit of a scenario's times, and its length in ns.
func (s *scenario) unit() (string, float64) {
	if s.far() {
		return "ms", 1e6
	}
	return "us", 1e3
}

// rows returns the rows of a figure, whose implementations ran alternately.
func (s *scenario) rows(f figure, root int, runs []*series) ([]bench.Row, error) {
	least, err := s.bound(f.collective, f.size)
	if err != nil {
		return nil, err
	}
	var predicted []collectives.Choice
	if s.far() && slices.ContainsFunc(runs, func(m *series) bool { return len(m.forced) > 0 }) {
		if predicted, err = s.predicted(f, root); err != nil {
			return nil, err
		}
	}
	var rows []bench.Row
	for _, m := range runs {
		row := s.row(f, m, "time")
		if algorithm := m.forced[f.collective]; algorithm != "" {
			name := m.named(algorithm)
			for _, c := range predicted {
				if c.Algorithm.Name == name && (m.flits == 0 || c.Algorithm.Flits == m.flits) {
					row.Params["predicted_ms"] = bench.Round(float64(c.Predicted) / 1e6)
				}
			}
			if m.flits > 0 {
				row.Params["chosen"] = m.flits == chosenFlits(predicted, algorithm)
			}
		}
		if s.far() {
			bound := float64(least) / 1e6
			row.Params["bound_ms"] = bench.Round(bound)
			row.Params["late_ms"] = bench.Round(bench.Median(m.late))
			row.Against, row.Ratio = "bound", row.Value/bound
			if bound == 0 { // neither delay nor bytes
				row.Against, row.Ratio = "", 0
			} else if m.chosen() {
				most := maxOverBound
				if f.size < large {
					most = (bound + maxBehind.Seconds()*1e3) / bound
				}
				row = row.AtMost(most)
			}
		}
		rows = append(rows, row)
	}
	return append(rows, s.judgements(f, runs)...), nil
}

// row returns the row of an implementation.
func (s *scenario) row(f figure, m *series, what string) bench.Row {
	unit, ns := s.unit()
	row := bench.Row{Bench: "coll", Figure: what, Value: bench.Median(m.took) / ns, Unit: unit, Params: map[string]any{
		"scenario": s.name, "collective": f.collective.String(), "size": f.size, "implementation": m.name,
	}}
	if len(m.took) > 0 {
		row.Params["repetitions"], row.Params["spread"] = len(m.took), bench.Round(bench.Spread(m.took))
	}
	if m.version != "" {
		row.Params["version"] = m.version
	}
	if a := m.forced[f.collective]; a != "" {
		row.Params["algorithm"] = a
	}
	if m.flits > 0 {
		row.Params["flits"] = m.flits
	}
	return row
}

// judgements compares our choice with the others that ran in the same rounds.
func (s *scenario) judgements(f figure, runs []*series) (rows []bench.Row) {
	at := slices.IndexFunc(runs, (*series).chosen)
	if at < 0 {
		return nil
	}
	mine := runs[at]
	compare := func(what string, with func(*series) bool, most float64) {
		other := best(runs, with)
		if other == nil {
			return
		}
		row := s.row(f, mine, what)
		row.Against = other.name
		if other.ours() {
			row.Against = other.implementation(f.collective)
		}
		row.Ratio = bench.Median(mine.took) / bench.Median(other.took)
		row.Params["against_spread"] = bench.Round(bench.Spread(other.took))
		if most > 0 {
			row = row.AtMost(most)
		}
		rows = append(rows, row)
	}
	peer := func(m *series) bool { return !m.ours() }
	compare("time_beside_best_algorithm", func(m *series) bool { return m.ours() && !m.chosen() }, maxOverBest)
	if !s.far() {
		compare("time_beside_best_peer", peer, maxOverLocal)
		return rows
	}
	compare("time_beside_han", func(m *series) bool { return m.name == nameHAN }, maxOverHAN)
	compare("time_beside_best_peer", peer, s.maxOverPeer(f))
	return rows
}

// maxOverPeer returns the target relative to the best peer, or 0.
func (s *scenario) maxOverPeer(f figure) float64 {
	bound := slices.Contains([]operation.Operation{operation.Barrier, operation.Allgather, operation.Alltoall}, f.collective) || f.collective == operation.Allreduce && f.size <= small
	if s.sites == 4 && s.rtt > 0 && bound {
		return maxOverPeer
	}
	return 0
}

// best returns the fastest of the series, or nil.
func best(runs []*series, of func(*series) bool) (quickest *series) {
	for _, m := range runs {
		if of(m) && (quickest == nil || bench.Median(m.took) < bench.Median(quickest.took)) {
			quickest = m
		}
	}
	return quickest
}
