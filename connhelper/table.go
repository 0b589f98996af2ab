package connhelper

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// table holds the node's processes by name, and the connect-ids that this helper issued and expects
// to receive.
type table struct {
	mu        sync.Mutex // guards the fields below; nothing is sent to a process under it
	processes map[overlay.ProcessName]*process
	owners    map[overlay.JobID]owner             // of the jobs of processes: another account cannot join them
	expected  map[wire.ID]chan<- *net.TCPConn     // capacity 1; removed by the first arrival
	dead      map[overlay.JobID][]*wire.LocalDead // for processes that register later; until Forget
	changed   chan struct{}                       // closed and replaced when a process is added
}

// owner is the user who owns a job's processes, and how many there are.
type owner struct {
	uid   uint32
	count int
}

func newTable() table {
	return table{
		processes: map[overlay.ProcessName]*process{},
		owners:    map[overlay.JobID]owner{},
		expected:  map[wire.ID]chan<- *net.TCPConn{},
		dead:      map[overlay.JobID][]*wire.LocalDead{},
		changed:   make(chan struct{}),
	}
}

// generation returns a generation for a process that registers for the first time.
func (t *table) generation(name overlay.ProcessName, now time.Time) overlay.Generation {
	t.mu.Lock()
	defer t.mu.Unlock()
	var old overlay.Generation
	if p := t.processes[name]; p != nil {
		old = p.generation
	}
	return overlay.NewGeneration(now, old)
}

// add enters p, in place of an older generation of it, which it returns.
func (t *table) add(p *process) (replaced *process, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	who, known := t.owners[p.name.Job]
	if known && who.uid != p.uid {
		return nil, fmt.Errorf("%w: job %s belongs to user %d on this node, not to user %d", overlay.ErrForbidden, p.name.Job, who.uid, p.uid)
	}
	old := t.processes[p.name]
	if old != nil && old.generation > p.generation {
		return nil, fmt.Errorf("%w: %v has started again since (generation %d, not %d)", overlay.ErrStale, p.name, old.generation, p.generation)
	}
	t.processes[p.name] = p
	p.missed = slices.Clone(t.dead[p.name.Job]) // it is notified of later deaths
	if old == nil {
		who.count++
	}
	who.uid = p.uid
	t.owners[p.name.Job] = who
	close(t.changed)
	t.changed = make(chan struct{})
	return old, nil
}

// remove removes p, if it is still the one entered under its name.
func (t *table) remove(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.processes[p.name] != p {
		return false
	}
	delete(t.processes, p.name)
	who := t.owners[p.name.Job]
	if who.count--; who.count == 0 {
		delete(t.owners, p.name.Job)
	} else {
		t.owners[p.name.Job] = who
	}
	return true
}

// later reports whether there is a later generation of p. If p was replaced by the same process on
// another socket, its links live on.
func (t *table) later(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.processes[p.name]
	return now != nil && now.generation > p.generation
}

func (t *table) get(name overlay.ProcessName) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.processes[name]
}

// wait returns the process of that name, or nil when ctx ends first.
func (t *table) wait(ctx context.Context, name overlay.ProcessName) *process {
	for {
		t.mu.Lock()
		p, changed := t.processes[name], t.changed
		t.mu.Unlock()
		if p != nil {
			return p
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// size returns the number of processes and of their jobs.
func (t *table) size() (processes, jobs int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.processes), len(t.owners)
}

func (t *table) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ps []*process
	for _, p := range t.processes {
		ps = append(ps, p)
	}
	return ps
}

// expect returns a channel for the connection that presents id. Call cancel when done; it closes a
// connection that arrived and was not taken.
func (t *table) expect(id wire.ID) (arrival <-chan *net.TCPConn, cancel func()) {
	ch := make(chan *net.TCPConn, 1)
	t.mu.Lock()
	t.expected[id] = ch
	t.mu.Unlock()
	return ch, func() {
		t.mu.Lock()
		delete(t.expected, id)
		t.mu.Unlock()
		select {
		case c := <-ch:
			c.Close()
		default:
		}
	}
}

// arrived gives c to the dial that expects id, and reports whether there is one.
func (t *table) arrived(id wire.ID, c *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch, ok := t.expected[id]
	if ok {
		delete(t.expected, id)
		ch <- c
	}
	return ok
}
