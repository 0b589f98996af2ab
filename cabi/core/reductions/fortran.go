package reductions

import (
	"bytes"
	"sync"
	"unsafe"
)

// fortran is what a Fortran interface above this library has said of its compiler's logical values (MPI-5.0, section 20.4).
var fortran struct {
	mu      sync.Mutex
	yes, no []byte // .TRUE. and .FALSE., of the same length
}

// SetLogicals notes what .TRUE. and .FALSE. are, and reports whether that was not known before: it is said once.
func SetLogicals(yes, no []byte) bool {
	fortran.mu.Lock()
	defer fortran.mu.Unlock()
	if fortran.yes != nil {
		return false
	}
	fortran.yes, fortran.no = bytes.Clone(yes), bytes.Clone(no)
	return true
}

// Logicals returns what was noted, nothing if nothing was. It does not change.
func Logicals() (yes, no []byte) {
	fortran.mu.Lock()
	defer fortran.mu.Unlock()
	return fortran.yes, fortran.no
}

// logicalValues are .TRUE. and .FALSE. of a type: 1 and 0 unless others of its size were set.
func logicalValues[T integer]() (yes, no T) {
	t, f := Logicals()
	if len(t) != int(unsafe.Sizeof(yes)) {
		return 1, 0
	}
	return elementsOf[T](t, 1)[0], elementsOf[T](f, 1)[0]
}
