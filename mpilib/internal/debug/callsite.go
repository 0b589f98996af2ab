package debug

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Callsite is where the program called the library: "Recv" at "ring/main.go:17". The line is empty
// for the library's own operations.
type Callsite struct {
	name string
	line string
}

// Parts returns the call, "Recv", and the line, "ring/main.go:17"; both are empty where the program did not call.
func (s Callsite) Parts() (call, line string) {
	if s.line == "" {
		return "", ""
	}
	return s.name, s.line
}

// At is for the end of a sentence.
func (s Callsite) At() string {
	if s.line == "" {
		return ""
	}
	return " at " + s.line
}

// callDepth is the maximum number of frames of the library, and of compiler wrappers, above the
// program's.
const callDepth = 24

// callsites caches the meaning of stacks, by their return addresses: there are few, and they repeat. A program
// that recurses may have any number of them, so only the first maxCallsites are kept.
var callsites struct {
	mu     sync.RWMutex
	places map[[callDepth]uintptr]Callsite
}

const maxCallsites = 4096

// CurrentCallsite returns where the program called the library, for use inside it.
func CurrentCallsite() Callsite {
	var key [callDepth]uintptr
	returnAddresses(key[:])
	callsites.mu.RLock()
	s, ok := callsites.places[key]
	callsites.mu.RUnlock()
	if ok {
		return s
	}
	stack := make([]uintptr, callDepth)
	s = findCall(runtime.CallersFrames(stack[:runtime.Callers(2, stack)]))
	callsites.mu.Lock()
	defer callsites.mu.Unlock()
	if callsites.places == nil {
		callsites.places = map[[callDepth]uintptr]Callsite{}
	}
	if len(callsites.places) < maxCallsites {
		callsites.places[key] = s
	}
	return s
}

const (
	library = "github.com/isthmus-grid/isthmus/mpilib."
)

// below is what the library calls.
var below = []string{library[:len(library)-1] + "/internal/", "github.com/isthmus-grid/isthmus/collectives"}

// findCall finds the outermost function of the library, and its caller. A test of the library
// counts as a program.
func findCall(frames *runtime.Frames) (s Callsite) {
	for {
		f, more := frames.Next()
		if more && slices.ContainsFunc(below, func(prefix string) bool { return strings.HasPrefix(f.Function, prefix) }) {
			continue
		}
		name, ours := strings.CutPrefix(f.Function, library)
		if !ours || strings.HasSuffix(f.File, "_test.go") {
			if s.name != "" && strings.HasSuffix(f.File, ".go") && f.Function != "runtime.goexit" && !strings.HasPrefix(f.Function, "sync.") {
				s.line = fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
			}
			return s
		}
		s.name = callName(name)
		if !more {
			return s
		}
	}
}

// callName makes "Isend" of "Isend[...]" and "Dup" of "(Comm).Dup".
func callName(function string) string {
	function, _, _ = strings.Cut(function, "[")
	if i := strings.LastIndex(function, ")."); i >= 0 {
		function = function[i+2:]
	}
	function, _, _ = strings.Cut(function, ".")
	return function
}
