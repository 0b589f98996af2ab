package directory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// maxBatch bounds the questions of one call to the broker; the rest waits for the next call.
	maxBatch = 1024

	// maxQueued bounds the questions that wait for a call. Further ones are refused.
	maxQueued = 64 << 10

	// lateAfter is how long the broker may take to answer a fresh question before the cached answer
	// is used: the session may be dead without notice, and when a link is restored the process
	// usually has not moved. The broker's own answer is cached for the next question.
	lateAfter = 150 * time.Millisecond
)

// Resolver answers questions from the cache, and asks the broker for the rest: one call at a time,
// each with all the questions that arrived during the previous one. Equal questions are sent once.
type Resolver struct {
	who  string // for errors
	ask  func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error)
	up   func() bool // reports whether there is a broker to call
	now  func() time.Time
	work *sync.WaitGroup // of the frontal: the goroutine that calls
	ctx  context.Context // of the frontal: a call outlives the caller that caused it

	mu      sync.Mutex // guards the fields below; never held during a call
	cache   *cache
	queue   []*flight                       // not sent yet, oldest first
	queued  map[overlay.ProcessName]*flight // the same by name
	asked   map[overlay.ProcessName]*flight // in the pending call
	calling bool
	count   ResolveCounters
}

// NewResolver returns a resolver of the site own that caches up to max answers for maxAge. Its
// calls end with ctx and are part of work.
func NewResolver(ctx context.Context, work *sync.WaitGroup, who string, own overlay.SiteID, up *uplink.Set, max int, maxAge time.Duration) *Resolver {
	return &Resolver{
		who: who, ask: up.Resolve, up: up.Up, now: time.Now, work: work, ctx: ctx,
		cache:  newCache(own, max, maxAge),
		queued: make(map[overlay.ProcessName]*flight), asked: make(map[overlay.ProcessName]*flight),
	}
}

// ResolveCounters counts the outcomes of the helpers' questions and the resulting calls to the
// broker.
type ResolveCounters struct {
	Hits    uint64 `json:"hits"`    // answered from the cache
	Misses  uint64 `json:"misses"`  // became a question to the broker
	Shared  uint64 `json:"shared"`  // waited for the answer to the same question of another
	Refused uint64 `json:"refused"` // not asked: the queue was full
	Faults  uint64 `json:"faults"`  // questions that the broker answered with a fault, or not at all
	Late    uint64 `json:"late"`    // answered from the cache because the broker took long
	Calls   uint64 `json:"calls"`   // Resolve calls to the broker
	Dropped uint64 `json:"dropped"` // entries that a report removed
	Entries int    `json:"entries"` // now in the cache
	Plans   int    `json:"plans"`   // now in the cache
	Pushed  uint64 `json:"pushed"`  // entries that went for want of room
}

// flight is one pending question, shared by all callers that ask it.
type flight struct {
	name   overlay.ProcessName
	fresh  bool
	done   chan struct{} // closed when the answer is set
	answer Answer
}

// Question is one process to look up. A fresh question is not answered from the cache unless the
// broker takes long.
type Question struct {
	Name  overlay.ProcessName
	Fresh bool
}

// Resolve answers all questions, in their order. When ctx ends, open questions fail with
// overlay.ErrTimeout.
func (r *Resolver) Resolve(ctx context.Context, questions []Question) []Answer {
	answers := make([]Answer, len(questions))
	flights := make([]*flight, len(questions))
	r.mu.Lock()
	up, now := r.up(), r.now()
	for i, q := range questions {
		answers[i], flights[i] = r.look(q, now, !up)
	}
	r.startCalling()
	r.mu.Unlock()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	for i, f := range flights {
		if f != nil {
			answers[i] = r.await(ctx, f, questions[i].Fresh, late)
		}
	}
	return answers
}

// await returns the result of a flight, or the cached answer if a fresh one is late.
func (r *Resolver) await(ctx context.Context, f *flight, fresh bool, late *time.Timer) Answer {
	if fresh {
		select {
		case <-f.done:
			return f.answer
		case <-ctx.Done():
		case <-late.C:
			late.Reset(0) // for the next
			if a, ok := r.cachedAtAnyAge(f.name); ok {
				return a
			}
		}
	}
	select {
	case <-f.done:
		return f.answer
	case <-ctx.Done():
		return Answer{Name: f.name, Err: fmt.Errorf("%s: %w: the broker has not answered yet where %v is", r.who, overlay.ErrTimeout, f.name)}
	}
}

// cachedAtAnyAge answers from the cache, regardless of its age.
func (r *Resolver) cachedAtAnyAge(name overlay.ProcessName) (Answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.cache.get(name, r.now(), true)
	if ok {
		r.count.Late++
	}
	return a, ok
}

// look answers one question or returns the flight that will. A fresh question does not join the
// pending call, which may have been answered before the caller learned that it needs a fresh
// answer.
func (r *Resolver) look(q Question, now time.Time, old bool) (Answer, *flight) {
	if !q.Fresh {
		if a, ok := r.cache.get(q.Name, now, old); ok {
			r.count.Hits++
			return a, nil
		}
		if f := r.asked[q.Name]; f != nil {
			r.count.Shared++
			return Answer{}, f
		}
	}
	if f := r.queued[q.Name]; f != nil {
		f.fresh = f.fresh || q.Fresh
		r.count.Shared++
		return Answer{}, f
	}
	if len(r.queue) >= maxQueued {
		r.count.Refused++
		return Answer{Name: q.Name, Err: fmt.Errorf("%s: %w: %d questions wait for the broker already", r.who, overlay.ErrOverloaded, maxQueued)}, nil
	}
	r.count.Misses++
	f := &flight{name: q.Name, fresh: q.Fresh, done: make(chan struct{})}
	r.queue = append(r.queue, f)
	r.queued[q.Name] = f
	return Answer{}, f
}

// startCalling starts the goroutine that empties the queue, if none runs.
func (r *Resolver) startCalling() {
	if r.calling || len(r.queue) == 0 {
		return
	}
	r.calling = true
	r.work.Go(r.callUntilEmpty)
}

func (r *Resolver) callUntilEmpty() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.calling = false
			r.mu.Unlock()
			return
		}
		batch := r.queue[:min(len(r.queue), maxBatch)]
		r.queue = slices.Clone(r.queue[len(batch):])
		for _, f := range batch {
			delete(r.queued, f.name)
			r.asked[f.name] = f
		}
		known := r.cache.recentPlans()
		r.count.Calls++
		r.mu.Unlock()

		answers := r.call(r.ctx, batch, known, 0)

		r.mu.Lock()
		now := r.now()
		clear(r.asked)
		for i, f := range batch {
			f.answer = answers[i]
			r.cache.put(f.answer, now)
			if f.answer.Err != nil {
				r.count.Faults++
			}
			close(f.done)
		}
		r.mu.Unlock()
	}
}

// call sends one batch to the broker, which waits so long for processes that are not registered, and
// processes its answer.
func (r *Resolver) call(ctx context.Context, batch []*flight, known map[uint64]*controlpb.Plan, wait time.Duration) []Answer {
	req := &controlpb.ResolveRequest{WaitMs: uint32(wait.Milliseconds())}
	for _, f := range batch {
		req.Questions = append(req.Questions, &controlpb.Question{Process: control.ProcessToPB(f.name), Fresh: f.fresh})
	}
	for digest := range known {
		req.CachedPlans = append(req.CachedPlans, digest)
	}
	resp, err := r.ask(ctx, req)
	if err == nil && len(resp.Answers) != len(batch) {
		err = fmt.Errorf("%s: %w: the broker gave %d answers to %d questions", r.who, overlay.ErrRefused, len(resp.Answers), len(batch))
	}
	for _, plan := range resp.GetPlans() {
		known[plan.Digest] = plan
	}
	answers := make([]Answer, len(batch))
	for i, f := range batch {
		if err != nil {
			answers[i] = Answer{Name: f.name, Err: err}
		} else {
			answers[i] = r.read(f.name, resp.Answers[i], known)
		}
	}
	return answers
}

// read checks one answer of the broker.
func (r *Resolver) read(name overlay.ProcessName, m *controlpb.Answer, known map[uint64]*controlpb.Plan) Answer {
	if m.GetFault() != nil {
		return Answer{Name: name, Err: control.FaultErr(m.Fault)}
	}
	wrong := func(format string, args ...any) Answer {
		return Answer{Name: name, Err: fmt.Errorf("%s: %w: the broker's answer about %v: %s", r.who, overlay.ErrRefused, name, fmt.Sprintf(format, args...))}
	}
	point, err := control.PointFromPB(m.GetPoint())
	if err != nil {
		return wrong("%v", err)
	}
	if point.Process != name {
		return wrong("it is about %v", point.Process)
	}
	a := Answer{Name: name, Point: m.Point}
	if point.Node.Site == r.cache.own {
		return a
	}
	if a.Plan = known[m.Plan]; a.Plan == nil {
		return wrong("it names a plan (%016x) that was never sent", m.Plan)
	}
	if plan, err := control.PlanFromPB(a.Plan); err != nil {
		return wrong("%v", err)
	} else if plan.Target != point.Node.Site || plan.Asker != r.cache.own {
		return wrong("its plan is for %s to %s", plan.Asker, plan.Target)
	}
	return a
}

// Remember caches an answer that arrived by another call.
func (r *Resolver) Remember(a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.put(a, r.now())
}

// Forget empties the cache.
func (r *Resolver) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	sites := r.cache.sites
	r.cache = newCache(r.cache.own, r.cache.points.Max, r.cache.maxAge)
	r.cache.sites = sites
}

// KnowsSite reports whether a broker has named another site in an answer. Forget does not change that.
func (r *Resolver) KnowsSite(site overlay.SiteID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.cache.sites.Get(site)
	return known
}

// Cached answers from the cache only.
func (r *Resolver) Cached(name overlay.ProcessName) (Answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.cache.get(name, r.now(), !r.up())
	if ok {
		r.count.Hits++
	}
	return a, ok
}

// NodeOf returns the name of a process's node if it is known, and otherwise of the process.
func (r *Resolver) NodeOf(name overlay.ProcessName) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.cache.points.Get(name); ok {
		return NodeOf(e.point)
	}
	return name.String()
}

// NodeOf returns the name of a process's node.
func NodeOf(p *controlpb.AccessPoint) string { return p.GetSite() + "/" + p.GetNode() }

// SiteOf returns the site of a process, "" if it is not known.
func (r *Resolver) SiteOf(name overlay.ProcessName) overlay.SiteID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.cache.points.Get(name); ok {
		return overlay.SiteID(e.point.Site)
	}
	return ""
}

// Report drops the cached answer about a process if it is the one that failed.
func (r *Resolver) Report(name overlay.ProcessName, generation overlay.Generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cache.drop(name, generation) {
		r.count.Dropped++
	}
}

// Counters returns the counts so far.
func (r *Resolver) Counters() ResolveCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.count
	c.Entries, c.Plans, c.Pushed = r.cache.points.Len(), r.cache.plans.Len(), r.cache.pushed
	return c
}
