// Package testload is for tests on machines that are busy with other things, and for those that
// leave a machine idle.
package testload

import (
	"flag"
	"runtime"
	"strconv"
	"time"
)

// Within returns d scaled to this machine's current load: multiplied by how many times longer than
// its processor time a thread takes to compute. A bound on a wait must fail because of the suite,
// and not because of what runs beside the tests.
func Within(d time.Duration) time.Duration { return time.Duration(float64(d) * slowdown()) }

// Parallel makes n of a package's parallel tests run at a time, where the command line does not say
// how many. It is called by a TestMain whose tests mostly wait, for timeouts and for the delays of
// networks: as many as there are processors, which is the default, leave these idle.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(max(n, runtime.GOMAXPROCS(0))))
	}
}
