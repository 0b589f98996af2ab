package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/watch"
	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxHang bounds how long a submitter may let a silent node count as alive.
const MaxHang = time.Hour

// hostsOf returns the nodes of a job that watch each other.
func hostsOf(m *nodepb.Start) ([]watch.Host, gossip.Config, error) {
	cfg := gossip.Config{Hang: time.Duration(m.HangMs) * time.Millisecond}
	cfg.Ping = min(cfg.Hang, time.Second)
	if cfg.Hang > MaxHang {
		return nil, cfg, fmt.Errorf("a node may hang for %v; at most %v", cfg.Hang, MaxHang)
	}
	var hosts []watch.Host
	for _, n := range m.Nodes {
		node, err := overlay.ParseNodeID(n.Node)
		if err != nil {
			return nil, cfg, err
		}
		hosts = append(hosts, watch.Host{Node: node, Ranks: n.Ranks})
	}
	return hosts, cfg, nil
}

// watchNodes starts failure detection among the job's nodes, from its commit on. Only Serve's
// goroutine calls it.
func (k *NodeService) watchNodes(b *booking) {
	p := b.program
	k.mu.Lock()
	watched := k.watches[b.ask.Job] != nil
	k.mu.Unlock()
	hosts := slices.Concat(p.hosts, b.joined)
	if len(hosts) < 2 && (len(hosts) == 0 || p.spares == 0) || k.opts.Reach == nil || watched {
		return
	}
	w, err := watch.New(watch.Config{
		Self: k.opts.Node, Since: b.since, Hosts: hosts, Gossip: p.gossip, Log: k.log.With("job", string(b.ask.Job)),
		Carrier: &carrier{k, b.ask.Job},
		Dead: func(h watch.Host, why string) {
			if k.opts.Dead != nil {
				k.opts.Dead(b.ask.Job, h.Ranks, why)
			}
			if p.spares > 0 {
				b.takeForDead(h.Node)
			}
		},
	})
	if err != nil {
		k.log.Warn("no helper watches the nodes of a job", "job", string(b.ask.Job), "error", err)
		return
	}
	k.mu.Lock()
	k.watches[b.ask.Job] = w
	k.mu.Unlock()
	k.work.Go(func() {
		w.Serve(b.busy)
		k.mu.Lock()
		delete(k.watches, b.ask.Job)
		k.mu.Unlock()
		if k.opts.Forget != nil {
			k.opts.Forget(b.ask.Job)
		}
	})
}

// absent returns the numbers of the processes that a job with replicas lacks: a pinned rank 0 has only
// one replica.
func (p *program) absent() (all []uint32) {
	if p.replicas < 2 || len(p.hosts) == 0 {
		return nil
	}
	there := map[uint32]bool{}
	for _, h := range p.hosts {
		for _, n := range h.Ranks {
			there[n] = true
		}
	}
	for n := range uint32(p.size) * uint32(p.replicas) {
		if !there[n] {
			all = append(all, n)
		}
	}
	return all
}

// reportAbsent reports the processes that the job lacks as dead, so that its processes here need not
// look for them.
func (b *booking) reportAbsent(p *program) {
	absent := p.absent()
	if len(absent) == 0 || b.k.opts.Dead == nil || b.k.opts.Forget == nil {
		return
	}
	b.k.opts.Dead(b.ask.Job, absent, "the job has no such replica, as rank 0 is pinned")
	b.forgetAtEnd()
}

// reportDead reports processes that have died, as the submitter says. Their own node's helper knows of
// those only that had joined the job.
func (b *booking) reportDead(m *nodepb.Dead) error {
	p := b.begun.Load()
	switch {
	case p == nil || p.replicas < 2 && p.spares == 0:
		return errors.New("deaths, and no process of a job with replicas or spares was started here")
	case len(m.Processes) > p.numbers():
		return fmt.Errorf("the death of %d processes of %d", len(m.Processes), p.numbers())
	}
	for _, n := range m.Processes {
		if int(n) >= p.numbers() {
			return fmt.Errorf("the death of process %d of %d", n, p.numbers())
		}
	}
	if b.k.opts.Dead != nil && b.k.opts.Forget != nil {
		b.k.opts.Dead(b.ask.Job, m.Processes, fmt.Sprintf("its launcher says: %.200s", m.Why))
		b.forgetAtEnd()
	}
	return nil
}

// join has another node watched, which joins the job.
func (b *booking) join(m *nodepb.Join) error {
	node, err := overlay.ParseNodeID(m.GetNode().GetNode())
	if err != nil {
		return err
	}
	h := watch.Host{Node: node, Ranks: m.Node.Ranks}
	doErr := b.k.do(func(time.Time) { err = b.admit(h) })
	return errors.Join(doErr, err)
}

// admit is join on Serve's goroutine.
func (b *booking) admit(h watch.Host) error {
	p := b.program
	if p == nil || !b.committed || p.spares == 0 {
		return fmt.Errorf("%v joins, and no job with spares was committed here", h.Node)
	}
	is := func(o watch.Host) bool { return o.Node == h.Node }
	if slices.ContainsFunc(p.hosts, is) || slices.ContainsFunc(b.joined, is) {
		return nil
	}
	b.joined = append(b.joined, h)
	b.note()
	b.k.mu.Lock()
	w := b.k.watches[b.ask.Job]
	b.k.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Admit(h)
}

// takeForDead tells the submitter that the watch here has taken a node for dead.
func (b *booking) takeForDead(node overlay.NodeID) {
	b.k.do(func(time.Time) {
		b.dead = append(b.dead, node.Key())
		b.note()
		if c, m := b.stream, b.takenForDead(); c != nil { // another one gets it when it attaches
			b.k.work.Go(func() { c.answer(m) }) // ends with the stream
		}
	})
}

func (b *booking) takenForDead() *nodepb.ToSubmitter {
	return &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_TakenForDead{TakenForDead: &nodepb.TakenForDead{Nodes: slices.Clone(b.dead)}}}
}

// forgetAtEnd has the deaths of the job's processes forgotten once no process is left, or this node
// service is not in charge any more.
func (b *booking) forgetAtEnd() {
	b.forgets.Do(func() {
		b.k.work.Go(func() {
			<-b.busy.Done()
			b.k.opts.Forget(b.ask.Job)
		})
	})
}

// receiveGossip passes a message to the watch that it is for.
func (k *NodeService) receiveGossip(job overlay.JobID, from overlay.NodeID, message []byte) error {
	k.mu.Lock()
	w := k.watches[job]
	k.mu.Unlock()
	if w == nil {
		return fmt.Errorf("%w: %v does not watch job %.110q (any more)", overlay.ErrUnknownProcess, k.opts.Node, string(job))
	}
	return w.Receive(from, message)
}

// carrier sends a watch's messages to the watches of the same job on other nodes.
type carrier struct {
	k   *NodeService
	job overlay.JobID
}

// Send implements watch.Carrier.
func (c *carrier) Send(ctx context.Context, to overlay.NodeID, message []byte) error {
	there, done, err := c.k.opts.Reach(ctx, to)
	if err != nil {
		return err
	}
	defer done()
	_, err = there.Gossip(ctx, &nodepb.GossipRequest{Job: string(c.job), From: c.k.opts.Node.Key(), Message: message})
	if err = control.FromStatus(err); errors.Is(err, overlay.ErrUnknownProcess) {
		return fmt.Errorf("%w: %w", watch.ErrOver, err)
	}
	return err
}
