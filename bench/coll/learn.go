package coll

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/isthmus-grid/isthmus/bench"
)

// learned identifies the calls that a correction applies to.
type learned struct {
	collective, algorithm string
	size                  int
}

// Learn writes corrections from the times of forced algorithms, in the format of
// mpilib.EnvCollLearned: the ratio of measured to predicted time, as the median of all
// scenarios. It ignores rows without a prediction.
func Learn(rows []bench.Row, w io.Writer) error {
	factors := map[learned][]float64{}
	for _, r := range rows {
		predicted, _ := r.Params["predicted_ms"].(float64)
		size, _ := r.Params["size"].(float64)
		collective, _ := r.Params["collective"].(string)
		algorithm, _ := r.Params["algorithm"].(string)
		if r.Bench != "coll" || r.Figure != "time" || r.Unit != "ms" || predicted <= 0 || algorithm == "" {
			continue
		}
		if flits, ok := r.Params["flits"].(float64); ok && flits > 1 {
			algorithm = fmt.Sprintf("%s:%d", algorithm, int(flits))
		}
		k := learned{collective, algorithm, int(size)}
		factors[k] = append(factors[k], r.Value/predicted)
	}
	if len(factors) == 0 {
		return errors.New("nothing to learn: no row has both the time of a forced algorithm and its prediction; bench coll --algorithms --json prints such rows for calls between sites")
	}
	keys := slices.SortedFunc(maps.Keys(factors), func(a, b learned) int {
		return cmp.Or(cmp.Compare(a.collective, b.collective), cmp.Compare(a.algorithm, b.algorithm), cmp.Compare(a.size, b.size))
	})
	fmt.Fprintln(w, "# collective, algorithm, bytes, times the predicted time")
	for _, k := range keys {
		f := math.Min(1e3, math.Max(1e-3, bench.Median(factors[k])))
		if _, err := fmt.Fprintf(w, "%s %s %d %.3f\n", k.collective, k.algorithm, k.size, f); err != nil {
			return err
		}
	}
	return nil
}
