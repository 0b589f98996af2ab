package frontal

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// maxAwait bounds how long a helper may wait in one call.
const maxAwait = 10 * time.Minute

// waiting counts a waiting call of a node until done is called.
func (f *Frontal) waiting(id control.Identity) (done func(), err error) {
	if err := f.waits.Take(id.Name, 1); err != nil {
		f.auditRefusal(id.String(), "waits", err)
		return nil, fmt.Errorf("%s: %w", f.who, err)
	}
	return func() { f.waits.Give(id.Name, 1) }, nil
}
