package daemon

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// maxStacks bounds the text of all stacks; some thousand goroutines fit.
const maxStacks = 8 << 20

// stacks returns the stacks of all goroutines as a crash prints them.
func stacks() []byte {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= maxStacks {
			return buf[:n]
		}
	}
}

// stillRunning lists the running goroutines, one line for all that were started with the same
// function: " 3 x proxy.(*Server).pump (chan receive)".
func stillRunning() string {
	count := map[string]int{}
	for _, stack := range strings.Split(string(stacks()), "\n\n")[1:] { // the first is the caller's own
		if what := goroutineName(stack); what != "" {
			count[what]++
		}
	}
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "  %d x %s\n", count[what], what)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// goroutineName returns the outermost function of a stack and what it waits for; "" for goroutines
// of the runtime and os/signal.
func goroutineName(stack string) string {
	lines := strings.Split(strings.TrimSpace(stack), "\n")
	head, state, _ := strings.Cut(lines[0], "[")
	if !strings.HasPrefix(head, "goroutine ") {
		return ""
	}
	state, _, _ = strings.Cut(state, "]")
	outermost := ""
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "created by ") {
			outermost = line
		}
	}
	if i := strings.LastIndex(outermost, "("); i > 0 { // the arguments
		outermost = outermost[:i]
	}
	outermost = outermost[strings.LastIndex(outermost, "/")+1:]
	if strings.HasPrefix(outermost, "runtime.") || strings.HasPrefix(outermost, "signal.") {
		return ""
	}
	return outermost + " (" + state + ")"
}
