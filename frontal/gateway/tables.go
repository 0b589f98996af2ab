package gateway

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// carries holds the dials that the frontal makes for its nodes until the node joins. A carry-id is
// used once.
type carries struct {
	count *limit.Counter[string] // by node
	wait  map[wire.ID]*carry
}

func newCarries(l Limits) *carries {
	return &carries{newPending("connections that wait for their node", l), make(map[wire.ID]*carry)}
}

// newPending counts pending and queued connections by node.
func newPending(what string, l Limits) *limit.Counter[string] {
	return limit.NewCounter[string](limit.Bounds{
		What: what, Total: l.Pending, PerKey: l.PendingPerNode, TotalSetting: "limits.pending", KeySetting: "limits.pending_per_node",
	})
}

func (c *carries) add(id wire.ID, v *carry) error {
	if err := c.count.Take(v.node, 1); err != nil {
		return err
	}
	c.wait[id] = v
	return nil
}

// take removes and returns the carry of id; nil if there is none.
func (c *carries) take(id wire.ID) *carry {
	v := c.wait[id]
	if v != nil {
		c.count.Give(v.node, 1)
		delete(c.wait, id)
	}
	return v
}

// returns maps connect-ids to nodes, so that a target that dials back to the gateway is connected
// to the node that requested it.
type returns struct {
	count *limit.Counter[string] // by node
	wait  map[wire.ID]returning
}

type returning struct {
	asker overlay.ProcessName
	node  string // of the asker
	until time.Time
}

func newReturns(l Limits) *returns {
	return &returns{newPending("connect-ids with which to be dialled back", l), make(map[wire.ID]returning)}
}

// add records a connect-id. Over the bound, expired ones are removed first.
func (r *returns) add(id wire.ID, v returning, now time.Time) error {
	if old, ok := r.wait[id]; ok && now.Before(old.until) {
		return fmt.Errorf("%w: the connect-id is in use", overlay.ErrForbidden)
	}
	r.forget(id)
	err := r.count.Take(v.node, 1)
	if err != nil {
		r.expire(now)
		err = r.count.Take(v.node, 1)
	}
	if err != nil {
		return err
	}
	r.wait[id] = v
	return nil
}

// end keeps a connect-id valid until the given time: the signalling request is over, but its
// connection may still be in transit.
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
			r.forget(id)
		}
	}
}

func (r *returns) forget(id wire.ID) {
	if v, ok := r.wait[id]; ok {
		r.count.Give(v.node, 1)
		delete(r.wait, id)
	}
}
