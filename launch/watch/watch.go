// Package watch detects, on one host of a job, which of the job's other hosts have died, so that
// the job's processes here can be told which ranks are lost. It runs the failure detector of
// package gossip with a real clock: one for each job and host, apart from the job's processes,
// which may be busy, stopped or gone.
//
// It knows no sockets: a Carrier sends messages to the watches of the same job on other hosts,
// whose receivers pass them to Receive. It does not know processes, either; each host has a list of
// ranks, which it passes to Config.Dead.
//
// All state belongs to the goroutine that runs Serve.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// maxIncoming bounds the messages queued for the detector. Further ones are dropped and
	// counted: later messages have newer information.
	maxIncoming = 256
	// sendTimeout bounds the sending of a message. A later arrival would be outdated.
	sendTimeout = 5 * time.Second
	// farewell bounds how long the end of a watch is announced. Hosts that miss it learn it from
	// others.
	farewell = 2 * time.Second
	// settling is how long a watch is silent at first: jobs that end within that time need no
	// watch, and many hosts that all start at once are not loaded further.
	settling = 2 * time.Second
)

// ErrOver is wrapped by a Carrier's error when the other host answers that it does not watch the
// job (any more). A host that answered so is not considered dead: its processes have ended.
var ErrOver = errors.New("the job is over there")

// ErrHandedOver is the cause of the end of Serve's context when another watch continues: then Serve
// does not announce to the other hosts that the job is over here.
var ErrHandedOver = errors.New("another watch goes on")

// A Carrier sends messages to other hosts.
type Carrier interface {
	// Send sends a message to the watch of the same job on another host, which receives it with the
	// name of this host. It returns when the message has arrived, or with an error when it may not
	// have or ctx has ended (ErrOver if there is no such watch); messages may get lost. It is safe
	// for concurrent use, and does not retain the message.
	Send(ctx context.Context, to overlay.NodeID, message []byte) error
}

// Host is a host of a job.
type Host struct {
	Node  overlay.NodeID
	Ranks []uint32 // of the processes there; with replicas their numbers in the job
}

// Config describes what to watch. The hosts and Gossip are the same on all hosts.
type Config struct {
	Self    overlay.NodeID // one of Hosts
	Hosts   []Host         // all of the job; the watch retains it
	Gossip  gossip.Config
	Carrier Carrier

	// Since is when the job began here, if this watch continues the work of an earlier one, which
	// ended by ErrHandedOver or crashed; zero: now.
	Since time.Time

	// Dead is called once for each host that is considered dead, with the reason. Calls are serial,
	// from a goroutine of Serve.
	Dead func(h Host, why string)

	Log *slog.Logger
}

// Watch is the watch of one job on one host.
type Watch struct {
	cfg      Config
	hosts    map[overlay.NodeID]Host
	incoming chan gossip.Message
	dropped  atomic.Uint64

	mail mail
	news news
	work sync.WaitGroup // mail and news; Serve waits for it
}

// New returns a watch that does nothing until Serve. It fails on an invalid or duplicate host, if
// Self is not among the hosts, and on an invalid Gossip.
func New(cfg Config) (*Watch, error) {
	w := &Watch{cfg: cfg, hosts: map[overlay.NodeID]Host{}, incoming: make(chan gossip.Message, maxIncoming)}
	for _, h := range cfg.Hosts {
		if _, err := overlay.ParseNodeID(h.Node.String()); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		if _, twice := w.hosts[h.Node]; twice {
			return nil, fmt.Errorf("watch: host %v is there twice", h.Node)
		}
		w.hosts[h.Node] = h
	}
	if _, here := w.hosts[cfg.Self]; !here {
		return nil, fmt.Errorf("watch: this host, %v, is none of the job's %d", cfg.Self, len(cfg.Hosts))
	}
	if _, err := w.detector(time.Now()); err != nil {
		return nil, err
	}
	w.mail = mail{w: w, hosts: map[overlay.NodeID]*hostQueue{}, over: map[overlay.NodeID]time.Time{}}
	w.news = news{w: w, reported: map[overlay.NodeID]bool{}}
	return w, nil
}

func (w *Watch) detector(now time.Time) (*gossip.Detector, error) {
	members := make([]overlay.NodeID, 0, len(w.hosts))
	for _, h := range w.cfg.Hosts {
		members = append(members, h.Node)
	}
	// The time of day increases from one start of the host to the next.
	if w.cfg.Since.IsZero() {
		return gossip.New(w.cfg.Gossip, w.cfg.Self, uint64(now.UnixNano()), members, now)
	}
	d, err := gossip.New(w.cfg.Gossip, w.cfg.Self, uint64(w.cfg.Since.UnixNano()), members, now)
	if err == nil {
		d.Resume(uint64(max(now.Sub(w.cfg.Since).Milliseconds(), 0))) // a detector step takes longer than 1 ms
	}
	return d, err
}

// Bound returns how long a dead host may count as alive.
func (w *Watch) Bound() time.Duration { return w.cfg.Gossip.Bound(len(w.hosts)) }

// Dropped returns how many messages were dropped because the queue was full.
func (w *Watch) Dropped() uint64 { return w.dropped.Load() }

// Serve watches until ctx ends, when the job is over here. It announces that to the other hosts,
// unless it happens within its first 2 s, in which it is silent, or the cause is ErrHandedOver. It
// returns when everything that it started has ended, after all calls of Dead and at most 2 s more.
// Call it once.
func (w *Watch) Serve(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer w.work.Wait()
	defer stop()
	select {
	case <-time.After(w.settleTime()):
	case <-ctx.Done():
		return nil
	}
	d, err := w.detector(time.Now())
	if err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			w.do(sending, d.Step(time.Now()))
		case m := <-w.incoming:
			w.do(sending, d.Receive(m, time.Now()))
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrHandedOver) {
				return nil
			}
			w.do(sending, d.Leave(time.Now()))
			w.mail.wait(farewell)
			return nil
		}
		timer.Reset(time.Until(d.Next()))
	}
}

// settleTime returns how long the watch is silent at first. One that continues another's work
// starts at once.
func (w *Watch) settleTime() time.Duration {
	if !w.cfg.Since.IsZero() && time.Since(w.cfg.Since) > settling {
		return 0
	}
	return settling
}

// Receive passes a message to the watch. The caller has authenticated from as its sender. An error
// means that the message is not valid in this job, which is the sender's fault. It is safe for
// concurrent use, and does not block.
func (w *Watch) Receive(from overlay.NodeID, message []byte) error {
	m, err := gossip.Decode(message)
	if err != nil {
		return fmt.Errorf("watch: from %v: %w", from, err)
	}
	if _, known := w.hosts[from]; !known {
		return fmt.Errorf("watch: %v is no host of the job: %w", from, overlay.ErrForbidden)
	}
	if m.From != from || m.To != w.cfg.Self {
		return fmt.Errorf("watch: from %v: a message from %v to %v: %w", from, m.From, m.To, overlay.ErrForbidden)
	}
	m.Entries = slices.DeleteFunc(m.Entries, func(e gossip.Entry) bool { _, known := w.hosts[e.ID]; return !known })
	select {
	case w.incoming <- m:
	default:
		w.dropped.Add(1)
	}
	return nil
}

// do carries out the detector's output.
func (w *Watch) do(ctx context.Context, out gossip.Output) {
	for i := range out.Send {
		w.mail.send(ctx, out.Send[i].To, out.Send[i].Append(nil))
	}
	for _, v := range out.Verdicts {
		switch v.Kind {
		case gossip.Failed:
			if w.mail.saidOver(v.ID, w.Bound()) {
				w.cfg.Log.Info("host is done", "node", v.ID.String())
				break
			}
			why := fmt.Sprintf("node %v is taken for dead: %s (last news %v ago)", v.ID, v.Reason, v.Silent.Round(100*time.Millisecond))
			w.cfg.Log.Warn("host failed", "node", v.ID.String(), "reason", v.Reason, "silent", v.Silent.String())
			w.news.add(w.hosts[v.ID], why)
		case gossip.Returned, gossip.Joined:
			// Its processes were reported as dead, and stay lost to those here.
			w.cfg.Log.Warn("host is back", "node", v.ID.String(), "verdict", v.Kind.String())
		default:
			w.cfg.Log.Info("host is done", "node", v.ID.String())
		}
	}
}

// news calls Dead for each dead host once, apart from the detector, which must not wait for the
// callee.
type news struct {
	w *Watch

	mu       sync.Mutex // not held during calls
	reported map[overlay.NodeID]bool
	queue    []func() // at most one for each host
	telling  bool
}

func (n *news) add(h Host, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reported[h.Node] {
		return
	}
	n.reported[h.Node] = true
	n.queue = append(n.queue, func() { n.w.cfg.Dead(h, why) })
	if !n.telling {
		n.telling = true
		n.w.work.Go(n.run)
	}
}

func (n *news) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.queue) > 0 {
		next := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		next()
		n.mu.Lock()
	}
	n.telling = false
}
