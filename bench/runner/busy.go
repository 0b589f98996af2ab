package runner

import (
	"fmt"
	"io"
	"os"
	"runtime"
)

// WarnIfBusy prints a warning, in the name of a benchmark, when other work needs the processors:
// polling code then loses them for milliseconds at a time, which affects the measurement.
func WarnIfBusy(w io.Writer, name string) {
	var load float64
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	if _, err := fmt.Sscan(string(text), &load); err == nil && load > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(w, "%s: %.1f processes want the %d processors already: do not rely on the figures\n", name, load, runtime.NumCPU())
	}
}
