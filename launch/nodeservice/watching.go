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
		h, err := hostOf(n)
		if err != nil {
			return nil, cfg, err
		}
		hosts = append(hosts, h)
	}
	return hosts, cfg, nil
}

func hostOf(n *nodepb.NodeOfJob) (watch.Host, error) {
	node, err := overlay.ParseNodeID(n.GetNode())
	return watch.Host{Node: node, Ranks: n.GetRanks()}, err
}

// watchNodes starts failure detection among the job's nodes, from its commit on. Only Serve's
// goroutine calls it.
func (k *NodeService) watchNodes(b *booking) {
	job, spares, hosts := b.Ask.Job, b.Spares, slices.Concat(b.Hosts, b.Joined)
	if len(hosts) < 2 && (len(hosts) == 0 || spares == 0) || k.opts.Reach == nil || k.watches[job] != nil {
		return
	}
	w, err := watch.New(watch.Config{
		Self: k.opts.Node, Since: b.Since, Hosts: hosts, Gossip: b.Gossip, Log: k.log.With("job", string(job)),
		Carrier: &carrier{k, job},
		Dead: func(h watch.Host, why string) {
			if k.opts.Dead != nil {
				k.opts.Dead(job, h.Ranks, why)
			}
			if spares > 0 {
				b.takeForDead(h.Node)
			}
		},
	})
	if err != nil {
		k.log.Warn("no helper watches the nodes of a job", "job", string(job), "error", err)
		return
	}
	k.watches[job] = w
	k.work.Go(func() {
		w.Serve(b.busy)
		k.do(func(time.Time) { delete(k.watches, job) })
		if k.opts.Forget != nil {
			k.opts.Forget(job)
		}
	})
}

// absent returns the numbers of the processes that a job with replicas lacks: a pinned rank 0 has only
// one replica.
func (p *program) absent() (all []uint32) {
	if p.Replicas < 2 || len(p.Hosts) == 0 {
		return nil
	}
	there := map[uint32]bool{}
	for _, h := range p.Hosts {
		for _, n := range h.Ranks {
			there[n] = true
		}
	}
	for n := range uint32(p.Size) * uint32(p.Replicas) {
		if !there[n] {
			all = append(all, n)
		}
	}
	return all
}

// absentReplica is why an absent process counts as dead, so that the processes here need not look for it.
const absentReplica = "the job has no such replica, as rank 0 is pinned"

// deaths returns what reports processes as dead, which may block. They are forgotten once no process of the job is left
// here, or this node service is not in charge any more.
func (b *booking) deaths(processes []uint32, why string) (report func()) {
	job, opts, first := b.Ask.Job, b.k.opts, !b.forgets
	if len(processes) == 0 || opts.Dead == nil || opts.Forget == nil {
		return func() {}
	}
	b.forgets = true
	return func() {
		opts.Dead(job, processes, why)
		if first {
			context.AfterFunc(b.busy, func() { opts.Forget(job) })
		}
	}
}

// reportDead reports processes that have died, as the submitter says. Their own node's helper knows of
// those only that had joined the job. Any goroutine but Serve's may call it.
func (b *booking) reportDead(m *nodepb.Dead) error {
	report := func() {}
	err := b.k.try(func(time.Time) error {
		switch {
		case !b.Started || b.Replicas < 2 && b.Spares == 0:
			return errors.New("deaths, and no process of a job with replicas or spares was started here")
		case len(m.Processes) > b.numbers():
			return fmt.Errorf("the death of %d processes of %d", len(m.Processes), b.numbers())
		}
		for _, n := range m.Processes {
			if int(n) >= b.numbers() {
				return fmt.Errorf("the death of process %d of %d", n, b.numbers())
			}
		}
		report = b.deaths(m.Processes, fmt.Sprintf("its launcher says: %.200s", m.Why))
		return nil
	})
	report()
	return err
}

// join has another node watched, which joins the job. Any goroutine but Serve's may call it.
func (b *booking) join(m *nodepb.Join) error {
	h, err := hostOf(m.GetNode())
	if err != nil {
		return err
	}
	is := func(o watch.Host) bool { return o.Node == h.Node }
	return b.k.try(func(time.Time) error {
		switch {
		case !b.Committed || b.Spares == 0:
			return fmt.Errorf("%v joins, and no job with spares was committed here", h.Node)
		case slices.ContainsFunc(b.Hosts, is) || slices.ContainsFunc(b.Joined, is):
			return nil
		}
		b.Joined = append(b.Joined, h)
		b.note()
		if w := b.k.watches[b.Ask.Job]; w != nil {
			return w.Admit(h)
		}
		return nil
	})
}

// takeForDead tells the submitter that the watch here has taken a node for dead. Any goroutine but Serve's may call it.
func (b *booking) takeForDead(node overlay.NodeID) {
	b.k.do(func(time.Time) {
		b.Dead = append(b.Dead, node.Key())
		b.note()
		b.answerLater(b.takenForDead())
	})
}

func (b *booking) takenForDead() *nodepb.ToSubmitter {
	return &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_TakenForDead{TakenForDead: &nodepb.TakenForDead{Nodes: slices.Clone(b.Dead)}}}
}

// receiveGossip passes a message to the watch that it is for.
func (k *NodeService) receiveGossip(job overlay.JobID, from overlay.NodeID, message []byte) error {
	var w *watch.Watch
	if err := k.do(func(time.Time) { w = k.watches[job] }); err != nil {
		return err
	}
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
