package submit

// This file stages files to the hosts of the plan, before the job is started.

import (
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// staging is the progress of one host.
type staging struct {
	ready      bool
	progressed time.Time // time of the last progress
	sent       int64
}

// counter counts bytes of files. Safe for concurrent use.
type counter struct {
	mu            sync.Mutex
	missing, sent int64
	of            map[overlay.NodeID]int64
}

func (c *counter) add(node overlay.NodeID, missing, sent int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing += missing
	c.sent += sent
	c.of[node] += missing + sent
}

func (c *counter) read(node overlay.NodeID) (missing, sent, total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing, c.sent, c.of[node]
}

// stageAll stages the files to the hosts of the plan, and starts the job when they have them.
func (d *driver) stageAll() {
	now, ready, used := time.Now(), 0, d.sub.Plan().Used()
	for _, h := range used {
		s := d.stages[h.Node]
		if s == nil {
			s = &staging{progressed: now}
			d.stages[h.Node] = s
			s.ready = d.talks[h.Node].stage.begin()
			d.talks[h.Node].poke()
		}
		if s.ready {
			ready++
		}
	}
	missing, sent, _ := d.bytes.read(overlay.NodeID{})
	d.progress(Progress{Step: "staging", Have: ready, Need: len(used), Sent: sent, Missing: missing})
	if ready == len(used) {
		d.do(d.sub.Start(now))
		d.advance()
	}
}

// stalled drops the hosts that make no progress.
func (d *driver) stalled(now time.Time) {
	for node, s := range d.stages {
		_, _, total := d.bytes.read(node)
		if total != s.sent || s.ready {
			s.sent, s.progressed = total, now
		} else if now.Sub(s.progressed) > stallTime {
			d.drop(node, fmt.Errorf("%s took nothing of the files for %v", node, stallTime), now)
			return
		}
	}
}

// ready records that a host has all files.
func (d *driver) ready(node overlay.NodeID) {
	if s := d.stages[node]; s != nil {
		s.ready = true
	}
}

// drop removes a host to which the files cannot be staged.
func (d *driver) drop(node overlay.NodeID, why error, now time.Time) {
	delete(d.stages, node)
	d.do(d.sub.Drop(node, now))
	if d.sub.Phase() >= reserve.Cancelling && d.cause == nil {
		d.cause = fmt.Errorf("%w; and %w", why, d.sub.Err())
	}
}
