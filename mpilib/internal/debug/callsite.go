package debug

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Callsite is where the program called the library: "Recv" at "ring/main.go:17". The
// line is empty for what the library does by itself.
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

// depth is how many frames of the library, and of what the compiler adds, may lie above
// the program's.
const callDepth = 16

// callsites remembers what stacks mean: there are few, and they come again and again.
var callsites sync.Map // [callDepth]uintptr -> Callsite

// Here returns where the program called the library, from inside of it.
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

// findCall looks for the outermost function of the library, and who called that. A
// test of the library is a program like others.
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
