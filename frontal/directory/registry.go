// Package directory holds what the frontal knows about the location of processes and hosts: the
// site's helpers and the processes that they registered (Registry), the broker's answers about
// other sites (Resolver), waiters for processes that are not registered yet (Awaits), and the hosts
// of the grid (Hosts). It serves no calls and carries no data; it calls the broker through package
// uplink.
//
// Each of the four has its own lock, which is held neither during a call nor while another of them
// is taken. The Resolver's lock is held while it queries package uplink for the existence of a
// session. Hosts also has a token, which is held during a request to the broker.
package directory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Registry knows the site's helpers and the processes they registered.
//
//	            register                     attach, detach
//	(unknown) ------------> confirmed ------------------------> in doubt, until a deadline
//	    ^                       ^                                  |       |
//	    |                       +------------ register ------------+       |
//	    +------------------ withdraw, expire after the grace --------------+
//
// A helper registers its processes again with each new session, so what it
// does not mention within the grace is gone.
type Registry struct {
	site         overlay.SiteID
	grace        time.Duration
	count        *limit.Counter[string] // processes, by node
	helperJoined chan struct{}          // holds a value after a helper joined

	mu        sync.Mutex         // guards the fields below and their values; never held during a call
	byNode    map[string]*helper // by node
	processes map[overlay.ProcessName]*registration
}

type helper struct {
	session   *control.Session // nil while absent
	since     time.Time        // start of the session, or of the absence
	processes map[overlay.ProcessName]*registration
}

type registration struct {
	point overlay.AccessPoint
	doubt time.Time         // when to drop it; zero while confirmed
	names map[string]string // its published names, with their ports

	// granted is what the broker read in the process's grant; unknown without a grant, or before
	// the broker's answer.
	granted overlay.Principal
}

// NewRegistry returns an empty registry for at most total processes, and at most perNode of one
// node.
func NewRegistry(site overlay.SiteID, grace time.Duration, total, perNode int) *Registry {
	return &Registry{site: site, grace: grace,
		count: limit.NewCounter[string](limit.Bounds{
			What: "registered processes", Total: total, PerKey: perNode, TotalSetting: "limits.processes", KeySetting: "limits.processes_per_node",
		}),
		byNode: make(map[string]*helper), processes: make(map[overlay.ProcessName]*registration), helperJoined: make(chan struct{}, 1)}
}

// helper returns the entry of a node. The caller holds mu.
func (r *Registry) helper(node string, now time.Time) *helper {
	h := r.byNode[node]
	if h == nil {
		h = &helper{since: now, processes: make(map[overlay.ProcessName]*registration)}
		r.byNode[node] = h
	}
	return h
}

// Attach makes s the session of a node and returns the session it replaces.
func (r *Registry) Attach(node string, s *control.Session, now time.Time) (replaced *control.Session) {
	defer r.wake()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.helper(node, now)
	replaced, h.session, h.since = h.session, s, now
	h.inDoubt(now.Add(r.grace))
	return replaced
}

// Detach records that a session ended. It does nothing if another session replaced it.
func (r *Registry) Detach(node string, s *control.Session, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byNode[node]
	if h == nil || h.session != s {
		return
	}
	h.session, h.since = nil, now
	h.inDoubt(now.Add(r.grace))
	if len(h.processes) == 0 {
		delete(r.byNode, node)
	}
}

func (h *helper) inDoubt(until time.Time) {
	for _, reg := range h.processes {
		reg.doubt = until
	}
}

// Register adds or confirms a process. A node may take a process over from another node of the site
// only with a newer generation.
func (r *Registry) Register(p overlay.AccessPoint, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.processes[p.Process]
	switch {
	case old != nil && p.Generation < old.point.Generation:
		return fmt.Errorf("%w: %v is registered at %v in generation %d, this is generation %d",
			overlay.ErrStale, p.Process, old.point.Node, old.point.Generation, p.Generation)
	case old != nil && p.Node != old.point.Node && !moves(p.Process):
		return fmt.Errorf("%w: %v is registered at %v; draw another rank", overlay.ErrForbidden, p.Process, old.point.Node)
	case old != nil && p.Generation == old.point.Generation && p.Node != old.point.Node:
		return fmt.Errorf("%w: %v runs at %v already, in the same generation %d",
			overlay.ErrForbidden, p.Process, old.point.Node, p.Generation)
	}
	if old == nil || old.point.Node != p.Node {
		if err := r.count.Take(p.Node.Name, 1); err != nil {
			return err
		}
	}
	p.Grant = unique.Make(p.Grant).Value() // processes of a job share one
	reg := &registration{point: p}
	if old != nil {
		if old.point.Generation == p.Generation {
			reg.names, reg.granted = old.names, old.granted
		}
		if r.drop(old); old.point.Node != p.Node {
			r.count.Give(old.point.Node.Name, 1)
		}
	}
	h := r.helper(p.Node.Name, now)
	if h.session == nil {
		reg.doubt = now.Add(r.grace) // its session ended during the call
	}
	h.processes[p.Process] = reg
	r.processes[p.Process] = reg
	return nil
}

// moves reports whether a name may move to another node while it is registered: not in the job of a
// node service, whose key is public.
func moves(name overlay.ProcessName) bool {
	_, isService := name.Job.ServiceNode()
	return !isService
}

// Withdraw removes a process of a node if its generation still matches.
func (r *Registry) Withdraw(node string, name overlay.ProcessName, generation overlay.Generation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.processes[name]
	if reg == nil || reg.point.Node.Name != node || reg.point.Generation != generation {
		return false
	}
	r.remove(reg)
	return true
}

// remove removes a process. The caller holds mu.
func (r *Registry) remove(reg *registration) {
	r.drop(reg)
	r.count.Give(reg.point.Node.Name, 1)
}

// drop is remove for a process that is still counted. The caller holds mu.
func (r *Registry) drop(reg *registration) {
	node, name := reg.point.Node.Name, reg.point.Process
	delete(r.processes, name)
	h := r.byNode[node]
	delete(h.processes, name)
	if h.session == nil && len(h.processes) == 0 {
		delete(r.byNode, node)
	}
}

// Publish records a name of a process of a node, and returns a function that reverts that.
func (r *Registry) Publish(node string, p overlay.Publication) (undo func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.processes[p.Process]
	switch {
	case reg == nil || reg.point.Node.Name != node:
		return nil, fmt.Errorf("%w: %v, which publishes %q, is not registered at %s/%s", overlay.ErrUnknownProcess, p.Process, p.Name, r.site, node)
	case reg.point.Generation != p.Generation:
		return nil, fmt.Errorf("%w: %v is in generation %d; generation %d publishes %q", overlay.ErrStale, p.Process, reg.point.Generation, p.Generation, p.Name)
	}
	before, had := reg.names[p.Name]
	if !had && len(reg.names) >= overlay.MaxNamesPerJob {
		return nil, fmt.Errorf("%w: %v has published %d names, the limit for a job", overlay.ErrOverloaded, p.Process, overlay.MaxNamesPerJob)
	}
	if reg.names == nil {
		reg.names = make(map[string]string)
	}
	reg.names[p.Name] = p.Port
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if had {
			reg.names[p.Name] = before
		} else {
			delete(reg.names, p.Name)
		}
	}, nil
}

// Unpublish removes a name.
func (r *Registry) Unpublish(node string, p overlay.Publication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg := r.processes[p.Process]; reg != nil && reg.point.Node.Name == node && reg.point.Generation == p.Generation {
		delete(reg.names, p.Name)
	}
}

// Lose removes a name that the broker no longer assigns to the process.
func (r *Registry) Lose(p overlay.Publication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg := r.processes[p.Process]; reg != nil && reg.point.Generation == p.Generation {
		delete(reg.names, p.Name)
	}
}

// Publications returns all names published by the site's processes, unordered.
func (r *Registry) Publications() (all []overlay.Publication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reg := range r.processes {
		for name, port := range reg.names {
			all = append(all, overlay.Publication{Name: name, Port: port, Process: reg.point.Process, Generation: reg.point.Generation})
		}
	}
	return all
}

// Expire removes the processes whose helper did not confirm them in time, and returns them.
func (r *Registry) Expire(now time.Time) []overlay.AccessPoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []overlay.AccessPoint
	for _, reg := range r.processes {
		if !reg.doubt.IsZero() && !now.Before(reg.doubt) {
			gone = append(gone, reg.point)
		}
	}
	for _, p := range gone {
		r.remove(r.processes[p.Process])
	}
	return gone
}

// Points returns all processes, unordered.
func (r *Registry) Points() []overlay.AccessPoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]overlay.AccessPoint, 0, len(r.processes))
	for _, reg := range r.processes {
		all = append(all, reg.point)
	}
	return all
}

// Point returns a process, whether or not its helper is connected.
func (r *Registry) Point(name overlay.ProcessName) (overlay.AccessPoint, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.processes[name]
	if reg == nil {
		return overlay.AccessPoint{}, false
	}
	return reg.point, true
}

// RunsAt reports whether a process is registered at a node.
func (r *Registry) RunsAt(node overlay.NodeID, name overlay.ProcessName) bool {
	point, ok := r.Point(name)
	return ok && point.Node == node
}

// Jobs counts the processes by job.
func (r *Registry) Jobs() map[overlay.JobID]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := make(map[overlay.JobID]int)
	for name := range r.processes {
		jobs[name.Job]++
	}
	return jobs
}

// Grant records what the broker read in the grant of a process, if its generation still matches.
func (r *Registry) Grant(name overlay.ProcessName, generation overlay.Generation, granted overlay.Principal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg := r.processes[name]; reg != nil && reg.point.Generation == generation {
		reg.granted = granted
	}
}

// Principal returns the principal of the first of the processes that is registered here.
func (r *Registry) Principal(names ...overlay.ProcessName) overlay.Principal {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if reg := r.processes[name]; reg != nil {
			return cmp.Or(reg.granted, reg.point.Principal)
		}
	}
	return overlay.Principal{}
}

// confirmed returns a process whose helper is connected and has confirmed it.
func (r *Registry) confirmed(name overlay.ProcessName) (overlay.AccessPoint, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.processes[name]
	if reg == nil || !reg.doubt.IsZero() {
		return overlay.AccessPoint{}, false
	}
	return reg.point, true
}

// Target returns a process and its helper's session. Generation 0 matches any.
func (r *Registry) Target(name overlay.ProcessName, generation overlay.Generation) (overlay.AccessPoint, *control.Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.processes[name]
	switch {
	case reg == nil:
		return overlay.AccessPoint{}, nil, fmt.Errorf("%w: %v is not at %s", overlay.ErrUnknownProcess, name, r.site)
	case generation != 0 && generation != reg.point.Generation:
		return reg.point, nil, fmt.Errorf("%w: %v is in generation %d, asked for is generation %d",
			overlay.ErrStale, name, reg.point.Generation, generation)
	}
	h := r.byNode[reg.point.Node.Name]
	if h.session == nil {
		return reg.point, nil, fmt.Errorf("%w: helper %v has no session with its frontal since %s",
			overlay.ErrNoSession, reg.point.Node, h.since.Format(time.TimeOnly))
	}
	return reg.point, h.session, nil
}

// Sessions returns the sessions of the connected helpers.
func (r *Registry) Sessions() (all []*control.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.byNode {
		if h.session != nil {
			all = append(all, h.session)
		}
	}
	return all
}

// nodes returns the names of the known nodes, sorted. The caller holds mu.
func (r *Registry) nodes() []string {
	names := make([]string, 0, len(r.byNode))
	for node := range r.byNode {
		names = append(names, node)
	}
	slices.Sort(names)
	return names
}

// HelperState is the state of the helper of one node.
type HelperState struct {
	Node      string
	Session   *control.Session // nil while absent
	Since     time.Time        // start of the session, or of the absence
	Processes int
}

// Helpers returns the states of the helpers, by node.
func (r *Registry) Helpers() (all []HelperState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range r.nodes() {
		h := r.byNode[node]
		all = append(all, HelperState{Node: node, Session: h.session, Since: h.since, Processes: len(h.processes)})
	}
	return all
}

// SetMax changes the maximum number of registered processes.
func (r *Registry) SetMax(total, perNode int) { r.count.SetMax(total, perNode) }

// Stats returns the number of processes and its limit.
func (r *Registry) Stats() limit.Stats { return r.count.Stats() }

// AwaitHelper returns a helper as soon as one is connected, another than that of a node if there is one. It fails only
// when ctx ends.
func (r *Registry) AwaitHelper(ctx context.Context, otherThan string) (string, *control.Session, error) {
	for waited := false; ; waited = true {
		if node, s := r.someHelper(otherThan); s != nil {
			if waited {
				r.wake() // another goroutine may wait as well
			}
			return node, s, nil
		}
		select {
		case <-r.helperJoined:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
}

// wake wakes the goroutines that wait for a helper. It never blocks.
func (r *Registry) wake() {
	select {
	case r.helperJoined <- struct{}{}:
	default:
	}
}

// someHelper returns the first helper by name that has a session, or nil; that of a node only if there is no other. A
// session that has ended may still be in the registry.
func (r *Registry) someHelper(otherThan string) (string, *control.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := r.nodes()
	if i := slices.Index(nodes, otherThan); i >= 0 {
		nodes = append(slices.Delete(nodes, i, i+1), otherThan)
	}
	for _, node := range nodes {
		s := r.byNode[node].session
		if s == nil {
			continue
		}
		select {
		case <-s.Done():
		default:
			return node, s
		}
	}
	return "", nil
}
