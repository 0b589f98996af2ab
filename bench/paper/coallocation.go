package paper

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/launch"
)

// jobSizes are numbers of processes of which the article's text says where they run.
var jobSizes = []int{200, 250, 300, 400}

// allocations is figures 2 and 3 of the co-allocation article, on all hosts of its table 1.
func (o Options) allocations(ctx context.Context) (m measured, err error) {
	self := o.Self[:len(o.Self):len(o.Self)]
	rows, err := launch.MeasureTable(ctx, launch.TableOptions{
		Sizes: jobSizes, Copies: []int{1}, Scale: 1, Err: o.Err,
		Binary: func(daemon string) []string {
			if daemon == "helpers" { // all of a site in one process, which is a command of the lab's
				return append(self, daemon)
			}
			return append(self, "isthmus", daemon)
		},
	})
	if err != nil {
		return m, err
	}
	for _, r := range ofFigure(rows, "hosts") {
		m.curves = append(m.curves, bench.Row{Figure: fmt.Sprintf("hosts_by_%v", r.Params["strategy"]), Value: r.Value, Unit: "hosts", Params: map[string]any{
			"processes": r.Params["n"], "algorithm": r.Params["site"],
		}})
	}
	m.figures = allocated(rows)
	return m, nil
}

// allocated returns how many sites are used, and hosts and processes of some.
func allocated(rows []bench.Row) figures {
	as, all := 0, 0
	sites := map[string]float64{}                                     // used, "spread 250"
	at := map[string]map[string]float64{"hosts": {}, "processes": {}} // "spread 250 nancy"
	for _, r := range rows {
		if at[r.Figure] == nil {
			continue
		}
		job := fmt.Sprintf("%v %v", r.Params["strategy"], r.Params["n"])
		at[r.Figure][fmt.Sprintf("%s %v", job, r.Params["site"])] = r.Value
		if r.Figure == "hosts" && r.Value > 0 {
			sites[job]++
		}
		all++
		if *r.Met {
			as++
		}
	}
	return figures{
		"near": sites["concentrate 200"], "lyon": at["hosts"]["concentrate 250 lyon"], "four": sites["spread 250"], "six": sites["spread 300"],
		"second": at["processes"]["spread 400 nancy"] - at["hosts"]["spread 400 nancy"], "agree": float64(as) / float64(all),
	}
}
