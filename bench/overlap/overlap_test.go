package overlap

import (
	"context"
	"fmt"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestMeasure(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		got, err := measure(ctx, c, 300_000, 2)
		if err != nil || c.Rank() != 0 {
			return err
		}
		if len(got.Alone) != 2 || len(got.Send) != 2 || len(got.Both) != 2 {
			return fmt.Errorf("%+v", got)
		}
		for i := range 2 { // the timed part includes the send, and the work
			if got.Send[i] <= 0 || got.Alone[i] < 10*got.Send[i]/100 || got.Both[i] < 20 {
				return fmt.Errorf("%+v", got)
			}
		}
		return nil
	})
}

// Each turn is compared with its own computation.
func TestRows(t *testing.T) {
	o := Options{Size: 5}
	for _, tc := range []struct {
		both []float64
		cost float64
		met  bool
	}{{[]float64{104, 208, 300}, 1.04, true}, {[]float64{106, 212, 300}, 1.06, false}} {
		rows := o.rows(times{Alone: []float64{100, 200, 300}, Send: []float64{7}, Both: tc.both})
		last := rows[len(rows)-1]
		if last.Ratio != tc.cost || *last.Met != tc.met || last.Against != "compute" || rows[0].Value != 200 || rows[1].Value != 7 {
			t.Errorf("%+v", rows)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, o := range []Options{{Size: 0, Repeat: 1}, {Size: 1, Repeat: 0}, {Size: 2 << 30, Repeat: 1}} {
		if o.Check() == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
