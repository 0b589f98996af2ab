// Package testload tells tests how much of what they could do they are to do, and how many of them
// at a time.
package testload

import (
	"flag"
	"strconv"
)

// Full reports whether the tests are built with the tag "system", as .ci/full does: whole systems
// run, and exhaustive models are exhausted. Without the tag such a model is sampled, from a fixed seed,
// for a second or two.
func Full() bool { return full }

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
