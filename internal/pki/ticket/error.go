package ticket

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Reason is why a ticket is not accepted, under the name of its counter.
type Reason string

// The reasons.
const (
	Foreign Reason = "ticket-foreign"  // it is for another proxy
	Forged  Reason = "ticket-forged"   // its MAC is wrong
	Expired Reason = "ticket-expired"  // by more than Skew
	TooLong Reason = "ticket-too-long" // it expires later than MaxLife from now
	Used    Reason = "ticket-used"     // this end of the link was connected before
	Full    Reason = "ticket-memory"   // the memory of used tickets is full
)

// Error is the refusal of a ticket. For errors.Is it is overlay.ErrOverloaded with reason Full, and
// overlay.ErrForbidden otherwise.
type Error struct {
	Reason Reason
	text   string
}

func refuse(r Reason, format string, args ...any) error {
	return &Error{r, fmt.Sprintf(format, args...)}
}

// Error is one sentence for the holder of the ticket.
func (e *Error) Error() string { return e.text }

// Unwrap returns the error's class.
func (e *Error) Unwrap() error {
	if e.Reason == Full {
		return overlay.ErrOverloaded
	}
	return overlay.ErrForbidden
}
