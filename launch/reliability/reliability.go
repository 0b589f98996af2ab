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

// MeanTime returns the mean time until a job of so many ranks with two replicas each fails, in units of the hosts' mean
// time between failures:
//
//	(1 + 4^n/C(2n,n)) / 2n
//
// With one replica it is 1/n.
func MeanTime(ranks int) float64 {
	n := float64(ranks)
	return (1 + inverseCentral(n)) / (2 * n)
}

// inverseCentral returns 4^n/C(2n,n), which is sqrt(pi) Γ(n+1)/Γ(n+1/2). It is a product of n factors up to
// where the asymptotic series, whose next term is below 1e-16 of it from there on, takes over.
func inverseCentral(n float64) float64 {
	if n <= 64 {
		p := 1.0
		for k := 1.0; k <= n; k++ {
			p *= 2 * k / (2*k - 1)
		}
		return p
	}
	x := 1 / n
	return math.Sqrt(math.Pi*n) * (1 + x*(1./8+x*(1./128+x*(-5./1024+x*(-21./32768+x*(399./262144+x*869./4194304))))))
}
