// Package testload tells tests how much of what they could do they are to do, and how many of them
// at a time.
package testload

import (
	"flag"
	"strconv"
	"time"
)

// Full reports whether the tests are built with the tag "system", as .ci/full does: whole systems
// run, and exhaustive models are exhausted. Without the tag such a model is sampled, from a fixed seed,
// for a second or two.
func Full() bool { return full }

// Within returns d scaled to this machine's current load: multiplied by how many times longer than
// its processor time a thread takes to compute. A bound on a wait must fail because of the suite,
// and not because of what runs beside the tests.
func Within(d time.Duration) time.Duration { return time.Duration(float64(d) * Slowdown()) }

// Slowdown returns how many times longer a computation takes now than its processor time, at least
// 1. It takes 50 ms to measure.
func Slowdown() float64 { return max(1, slowdown()) }

// Again reports whether a measurement that was wrong is to be repeated: at most twice, and only on a
// machine that is busy with other things, whose delays are part of what was measured.
func Again(repeated int) bool { return repeated < 2 && Slowdown() > 1.2 }

// Parallel makes n of a package's parallel tests run at a time, where the command line does not say
// how many. A TestMain calls it whose tests mostly wait, for timeouts and for the delays of networks:
// as many as there are processors, which is the default, leave these idle. Tests that keep the
// processors busy, or in which daemons judge each other by time, want 1.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(n))
	}
}
