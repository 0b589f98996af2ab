package debug

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Callsite is where the program called the library: "Recv" at "ring/main.go:17". The line is empty
// for the library's own operations.
type Callsite struct {
	name string
	line string
}

// At is for the end of a sentence.
func (s Callsite) At() string {
	if s.line == "" {
		return ""
	}
	return " at " + s.line
}

// depth is the maximum number of frames of the library, and of compiler wrappers, above the
// program's.
const callDepth = 16

// callsites caches the meaning of stacks: there are few, and they repeat.
var callsites sync.Map // [callDepth]uintptr -> Callsite

// Here returns where the program called the library, for use inside it.
func Here() Callsite {
	var stack [callDepth]uintptr
	n := runtime.Callers(2, stack[:])
	if known, ok := callsites.Load(stack); ok {
		return known.(Callsite)
	}
	s := findCall(runtime.CallersFrames(stack[:n]))
	callsites.Store(stack, s)
	return s
}

const (
	library = "github.com/isthmus-grid/isthmus/mpilib."
	below   = "github.com/isthmus-grid/isthmus/mpilib/internal/" // what the library calls
)

// findCall finds the outermost function of the library, and its caller. A test of the library
// counts as a program.
func findCall(frames *runtime.Frames) (s Callsite) {
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, below) && more {
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
