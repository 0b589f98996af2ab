package farm

import (
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/examples/ray2mesh/earth"
)

// An arrival is what tracing a ray gave: its number and how long it takes, or
// noRay. Messages of results are of arrivals.
type arrival struct {
	Ray     int64
	Seconds float64
}

// noRay is the time of a ray that does not exist: its station is in the shadow.
const noRay = -1

// ledger is all arrivals, as the master keeps them.
type ledger []float64

// newLedger returns the empty ledger of so many rays.
func newLedger(rays int64) ledger {
	l := make(ledger, rays)
	for i := range l {
		l[i] = math.NaN()
	}
	return l
}

// enter notes arrivals. Each ray is there once.
func (l ledger) enter(arrivals []arrival) error {
	for _, a := range arrivals {
		if a.Ray < 0 || a.Ray >= int64(len(l)) || !math.IsNaN(l[a.Ray]) {
			return fmt.Errorf("the result of ray %d is none of %d, or has arrived before", a.Ray, len(l))
		}
		l[a.Ray] = a.Seconds
	}
	return nil
}

// missing returns the rays that are not there, in runs.
func (l ledger) missing() (runs []chunk) {
	for i, seconds := range l {
		if !math.IsNaN(seconds) {
			continue
		}
		if n := len(runs) - 1; n >= 0 && runs[n].First+runs[n].Count == int64(i) {
			runs[n].Count++
		} else {
			runs = append(runs, chunk{int64(i), 1})
		}
	}
	return runs
}

// summary is what is known of all rays in the end.
type summary struct {
	Arrived  int64   // rays that exist
	Mean     float64 // seconds that one takes
	Checksum uint64  // of all numbers and times
}

// sum returns the summary, or an error if a ray is missing.
func (l ledger) sum() (s summary, err error) {
	for i, seconds := range l {
		if math.IsNaN(seconds) {
			return s, fmt.Errorf("no rank has traced ray %d", i)
		}
		s.Checksum += earth.Mix(uint64(i) ^ earth.Mix(math.Float64bits(seconds)))
		if seconds != noRay {
			s.Arrived++
			s.Mean += seconds
		}
	}
	s.Mean /= float64(max(s.Arrived, 1))
	return s, nil
}

// checksumOf returns the checksum of part of a mesh, from cell first. The sum of
// all parts' is that of the whole.
func checksumOf(first int, part []int64) (sum uint64) {
	for i, length := range part {
		sum += earth.Mix(uint64(first+i)) * uint64(length)
	}
	return sum
}
