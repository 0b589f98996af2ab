// Package reliability says how likely a job of replicated ranks is to fail. It knows two numbers
// of hosts, how often they fail and for how long the job runs, and takes failures as
// independent and memoryless; it refuses to know which hosts those are. It is pure.
//
// A job fails with the first rank all of whose replicas have failed. Nothing that failed comes back.
package reliability

import "math"

// Failure returns the probability that a job of so many ranks fails within a time, each rank with so many
// replicas on hosts of their own, which fail once in mtbf on average. Time and mtbf are in the same unit.
//
//	F = 1 - (1 - (1 - e^(-time/mtbf))^replicas)^ranks
//
// It is exact to a few units in the last place also where F is far below the least difference from 1 of a
// float64.
func Failure(ranks, replicas int, time, mtbf float64) float64 {
	host := -math.Expm1(-time / mtbf)
	rank := math.Pow(host, float64(replicas))
	return -math.Expm1(float64(ranks) * math.Log1p(-rank))
}
