package replicas

import (
	"fmt"
	"time"
)

// A comparison is one of a job with two replicas of each rank and two jobs at once.
type comparison struct {
	place, what string
	ranks       int
	delay       time.Duration // one way, between ranks 0 and 1
	size        int           // of the messages of round trips; -1: a kernel, which what names
	most        float64       // target; 0: none
}

// comparisons returns those with kernels of a class.
func comparisons(class string) []comparison {
	all := []comparison{
		{place: "distant", what: "trips 1", ranks: 2, delay: 5 * time.Millisecond, size: 1, most: 1.02},
		{place: "site", what: "trips 1", ranks: 2, size: 1, most: 1.20},
		{place: "site", what: "trips 65536", ranks: 2, size: 64 << 10, most: 1.10},
	}
	for _, name := range []string{"is", "ep", "cg", "mg", "ft"} {
		most := 1.07
		if name == "ep" {
			most = 1.01
		}
		all = append(all, comparison{place: "site", what: name + " " + class, ranks: 4, size: -1, most: most})
	}
	return all
}

// key is what Options.Only is matched with.
func (c comparison) key() string { return c.place + "/" + c.what }

// order returns the order for so many round trips, or a run of the kernel.
func (c comparison) order(count int) string {
	if c.size < 0 {
		return orderKernel + " " + c.what
	}
	return fmt.Sprintf("%s %d %d", orderTrips, c.size, count)
}
