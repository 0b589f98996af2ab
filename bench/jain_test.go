package bench

import (
	"math"
	"testing"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{0, 0}, 0},
		{[]float64{7, 7, 7}, 1},
		{[]float64{5, 0, 0, 0, 0}, 0.2},
		{[]float64{1, 3}, 0.8},
	} {
		if got := Jain(c.values); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}
