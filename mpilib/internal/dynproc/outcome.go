package dynproc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/overlay"
)

// broadcastTimeout bounds how long a root tries to notify its side that it gives up, when its own
// context is done.
const broadcastTimeout = 10 * time.Second

// outcome is an error, or none, as exchanged between processes.
type outcome struct {
	Class uint8 // of outcomeClasses; 0: no error
	Text  [400]byte
}

// outcomeClasses are the errors that keep their class in transit.
var outcomeClasses = []error{nil, mpi.ErrPort, mpi.ErrProcFailed, mpi.ErrMismatch, mpi.ErrFinalized, context.DeadlineExceeded, context.Canceled, overlay.ErrTimeout, overlay.ErrUnreachable, errOther}

var errOther = errors.New("failed")

// outcomeOf converts err.
func outcomeOf(err error) (v outcome) {
	if err == nil {
		return v
	}
	copy(v.Text[:], err.Error())
	for class, target := range outcomeClasses {
		if target != nil && (errors.Is(err, target) || target == errOther) {
			v.Class = uint8(class)
			break
		}
	}
	return v
}

// err is the error that process who reported.
func (v outcome) err(who string) error {
	if v.Class == 0 {
		return nil
	}
	text := v.Text[:]
	for i, b := range text {
		if b == 0 {
			text = text[:i]
			break
		}
	}
	return &reportedError{text: fmt.Sprintf("%s says: %s", who, text), class: outcomeClasses[min(int(v.Class), len(outcomeClasses)-1)]}
}

// reportedError is an error that another process reported.
type reportedError struct {
	text  string
	class error
}

func (e *reportedError) Error() string { return e.text }
func (e *reportedError) Unwrap() error { return e.class }
