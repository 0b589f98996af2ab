package connhelper

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/launch/offer"
)

// powerTime is how long the power of a node is measured.
const powerTime = 200 * time.Millisecond

// nodePower returns the power of this node, as in offer.Offer. The first call measures it, on all cores at once.
var nodePower = sync.OnceValue(func() int {
	var all sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for time.Since(began) < powerTime {
				n.Add(multiplyAdd())
			}
		})
	}
	all.Wait()
	return int(min(math.Ceil(float64(n.Load())/1e6/time.Since(began).Seconds()), offer.MaxPower))
})

// multiplyAdd adds multiples of one vector to another, as sparse solvers do for most of their time, and returns how
// many multiplications and additions that are. The vectors are in the second level of the processor's caches.
func multiplyAdd() int64 {
	const length, rounds = 16 << 10, 16
	x, y := make([]float64, length), make([]float64, length)
	for i := range x {
		x[i] = float64(i)
	}
	for range rounds {
		for i, v := range x {
			y[i] += .5 * v
		}
	}
	return length * rounds
}
