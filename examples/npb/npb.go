// Package npb is what the NAS Parallel Benchmark kernels here have in common:
// problem classes, check values and the report in the manner of NPB. It knows
// no kernel and no message passing, and keeps no state.
package npb

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Class is a problem size, one letter as in NPB: "S", "W", "A", "B", ...
type Class string

// Check is one verified value.
type Check struct {
	// Name says what was computed: "sum X", "iteration 3 rank of key 2".
	Name string `json:"name"`
	// Got and Want are the computed and the official value. Integers are
	// exact: none exceeds 2^53.
	Got  float64 `json:"got"`
	Want float64 `json:"want"`
	// Tolerance is relative to Want; 0 asks for equality.
	Tolerance float64 `json:"tolerance"`
	OK        bool    `json:"ok"`
}

// NewCheck compares. A value that is not a number is never right.
func NewCheck(name string, got, want, tolerance float64) Check {
	return Check{name, got, want, tolerance, got == want || math.Abs(got-want) <= tolerance*math.Abs(want)}
}

// Result is the outcome of one run, the same on every rank.
type Result struct {
	Kernel     string  `json:"kernel"` // "IS"
	Class      Class   `json:"class"`
	Size       string  `json:"size"` // in the kernel's own terms: "65536 keys"
	Ranks      int     `json:"ranks"`
	Iterations int     `json:"iterations"`
	Seconds    float64 `json:"seconds"`      // timed part, the slowest rank's
	CommTime   float64 `json:"comm_seconds"` // of which in message passing, the slowest rank's
	Mops       float64 `json:"mops"`         // million operations a second, all ranks together
	Operation  string  `json:"operation"`    // what one operation is
	Checks     []Check `json:"checks"`
	Verified   bool    `json:"verified"` // every check is right
}

// Verify records the checks and the verdict. No checks is no verification.
func (r *Result) Verify(checks []Check) {
	r.Checks, r.Verified = checks, len(checks) > 0
	for _, c := range checks {
		r.Verified = r.Verified && c.OK
	}
}

// WriteTo prints the report in NPB's manner. Of the checks it shows all wrong
// ones; right ones only up to four, above that their number.
func (r *Result) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n\n NAS Parallel Benchmarks in Go -- %s Benchmark\n\n", r.Kernel)
	r.writeChecks(&b)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, " %-17s= %24s\n", name, fmt.Sprintf(format, args...))
	}
	verdict := "UNSUCCESSFUL"
	if r.Verified {
		verdict = "SUCCESSFUL"
	}
	fmt.Fprintf(&b, "\n\n %s Benchmark Completed\n", r.Kernel)
	line("Class", "%s", r.Class)
	line("Size", "%s", r.Size)
	line("Iterations", "%d", r.Iterations)
	line("Time in seconds", "%.2f", r.Seconds)
	line("Time in messages", "%.2f", r.CommTime)
	line("Total processes", "%d", r.Ranks)
	line("Mop/s total", "%.2f", r.Mops)
	line("Mop/s/process", "%.2f", r.Mops/float64(r.Ranks))
	line("Operation type", "%s", r.Operation)
	line("Verification", "%s", verdict)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (r *Result) writeChecks(b *strings.Builder) {
	const few = 4
	right := 0
	for _, c := range r.Checks {
		verdict := "wrong"
		if c.OK {
			if right++; len(r.Checks) > few {
				continue
			}
			verdict = "right"
		}
		fmt.Fprintf(b, " %-30s %.15g, official %.15g: %s\n", c.Name, c.Got, c.Want, verdict)
	}
	fmt.Fprintf(b, " %d of %d check values are right\n", right, len(r.Checks))
}
