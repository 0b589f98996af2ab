package frontal

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// carries holds the dials that the frontal makes for its nodes until the node
// shows up to be joined. A carry-id is taken once.
type carries struct {
	max  int
	wait map[wire.ID]*carry
}

func newCarries(max int) *carries { return &carries{max: max, wait: make(map[wire.ID]*carry)} }

func (c *carries) add(id wire.ID, v *carry) error {
	if len(c.wait) >= c.max {
		return fmt.Errorf("%w: %d connections wait for their node already (limits.pending)", overlay.ErrOverloaded, c.max)
	}
	c.wait[id] = v
	return nil
}

// take removes and returns what id stands for; nil if nothing.
func (c *carries) take(id wire.ID) *carry {
	v := c.wait[id]
	delete(c.wait, id)
	return v
}

// returns knows which node's connect-id is whose, so that a target that dials
// back to the gateway is brought to the node that asked for it.
type returns struct {
	max  int
	wait map[wire.ID]returning
}

type returning struct {
	asker overlay.ProcessName
	until time.Time
}

func newReturns(max int) *returns { return &returns{max: max, wait: make(map[wire.ID]returning)} }

// add remembers a connect-id. Over the bound the ones that are over go first.
func (r *returns) add(id wire.ID, v returning, now time.Time) error {
	if len(r.wait) >= r.max {
		r.expire(now)
	}
	if len(r.wait) >= r.max {
		return fmt.Errorf("%w: %d nodes wait to be dialled back already (limits.pending)", overlay.ErrOverloaded, r.max)
	}
	if old, ok := r.wait[id]; ok && now.Before(old.until) {
		return fmt.Errorf("%w: the connect-id is in use", overlay.ErrForbidden)
	}
	r.wait[id] = v
	return nil
}

// end lets a connect-id live until the given time: the introduction is over,
// but the connection it brought about may still be on its way.
func (r *returns) end(id wire.ID, until time.Time) {
	if v, ok := r.wait[id]; ok {
		v.until = until
		r.wait[id] = v
	}
}

// find returns the process that waits for a connect-id.
func (r *returns) find(id wire.ID, now time.Time) (overlay.ProcessName, bool) {
	v, ok := r.wait[id]
	return v.asker, ok && now.Before(v.until)
}

func (r *returns) expire(now time.Time) {
	for id, v := range r.wait {
		if !now.Before(v.until) {
			delete(r.wait, id)
		}
	}
}
