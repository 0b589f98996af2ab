// Package watch detects, on one host of a job, which of the job's other hosts have died, so that
// the job's processes here learn which ranks are lost. It runs the failure detector of
// package gossip with a real clock: one for each job and host, apart from the job's processes,
// which may be busy, stopped or gone.
//
// It knows no sockets: a Carrier sends messages to the watches of the same job on other hosts,
// whose receivers pass them to Receive. It does not know processes, either; each host has a list of
// ranks, which it passes to Config.Dead.
//
// All state belongs to the goroutine that runs Serve, but the list of hosts, which Admit extends
// while the job runs.
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
	// leaveTimeout bounds how long the end of a watch is announced. Hosts that miss it learn it from
	// others.
	leaveTimeout = 2 * time.Second
	// silentStart is how long a watch is silent at first: jobs that end within that time need no
	// watch, and many hosts that all start at once are not loaded further.
	silentStart = 2 * time.Second
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

// Config describes what to watch. Gossip is the same on all hosts, and so are the hosts, but for those
// that are admitted later.
type Config struct {
	Self    overlay.NodeID // one of Hosts
	Hosts   []Host         // all of the job at the start; the watch retains it
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
	hosts    hostList
	incoming chan gossip.Message
	admitted chan struct{} // hosts has more to take
	dropped  atomic.Uint64

	mail   messageQueues
	deaths deathReports
	work   sync.WaitGroup // mail and deaths; Serve waits for it
}

// New returns a watch that does nothing until Serve. It fails on an invalid or duplicate host, if
// Self is not among the hosts, and on an invalid Gossip.
func New(cfg Config) (*Watch, error) {
	w := &Watch{cfg: cfg, incoming: make(chan gossip.Message, maxIncoming), admitted: make(chan struct{}, 1)}
	for _, h := range cfg.Hosts {
		if err := w.hosts.add(h); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
	}
	if _, here := w.hosts.find(cfg.Self); !here {
		return nil, fmt.Errorf("watch: this host, %v, is none of the job's %d", cfg.Self, len(cfg.Hosts))
	}
	if _, err := w.detector(nil, time.Now()); err != nil {
		return nil, err
	}
	w.mail = messageQueues{w: w, hosts: map[overlay.NodeID]*hostQueue{}, over: map[overlay.NodeID]time.Time{}}
	w.deaths = deathReports{w: w, reported: map[overlay.NodeID]bool{}}
	return w, nil
}

func (w *Watch) detector(members []overlay.NodeID, now time.Time) (*gossip.Detector, error) {
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
func (w *Watch) Bound() time.Duration { return w.cfg.Gossip.Bound(w.hosts.len()) }

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
	d, err := w.detector(w.hosts.take(), time.Now())
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
		case <-w.admitted:
			for _, node := range w.hosts.take() {
				w.do(sending, d.Add(node, time.Now()))
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrHandedOver) {
				return nil
			}
			w.do(sending, d.Leave(time.Now()))
			w.mail.wait(leaveTimeout)
			return nil
		}
		timer.Reset(time.Until(d.Next()))
	}
}

// settleTime returns how long the watch is silent at first. One that continues another's work
// starts at once.
func (w *Watch) settleTime() time.Duration {
	if !w.cfg.Since.IsZero() && time.Since(w.cfg.Since) > silentStart {
		return 0
	}
	return silentStart
}

// Receive passes a message to the watch. The caller has authenticated from as its sender. An error
// means that the message is not valid in this job, which is the sender's fault. It is safe for
// concurrent use, and does not block.
func (w *Watch) Receive(from overlay.NodeID, message []byte) error {
	m, err := gossip.Decode(message)
	if err != nil {
		return fmt.Errorf("watch: from %v: %w", from, err)
	}
	if _, known := w.hosts.find(from); !known {
		return fmt.Errorf("watch: %v is no host of the job: %w", from, overlay.ErrForbidden)
	}
	if m.From != from || m.To != w.cfg.Self {
		return fmt.Errorf("watch: from %v: a message from %v to %v: %w", from, m.From, m.To, overlay.ErrForbidden)
	}
	m.Entries = slices.DeleteFunc(m.Entries, func(e gossip.Entry) bool { _, known := w.hosts.find(e.ID); return !known })
	select {
	case w.incoming <- m:
	default:
		w.dropped.Add(1)
	}
	return nil
}

// Admit adds a host that joins the running job: from now on it is watched like those of
// Config.Hosts, and its messages are accepted. All watches of the job have to admit it, each of
// which does so without the others; the one on the host itself has it among its Config.Hosts. Admit
// fails, and does nothing, if the host is invalid or one of the job's, also one that has died: it
// does not return. It is safe for concurrent use, also before Serve, and does not block.
func (w *Watch) Admit(h Host) error {
	if err := w.hosts.add(h); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	select {
	case w.admitted <- struct{}{}:
	default: // Serve takes all that are new at once
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
			if w.mail.reportedOver(v.ID, w.Bound()) {
				w.cfg.Log.Info("host is done", "node", v.ID.String())
				break
			}
			why := fmt.Sprintf("node %v is taken for dead: %s (last news %v ago)", v.ID, v.Reason, v.Silent.Round(100*time.Millisecond))
			w.cfg.Log.Warn("host failed", "node", v.ID.String(), "reason", v.Reason, "silent", v.Silent.String())
			h, _ := w.hosts.find(v.ID)
			w.deaths.add(h, why)
		case gossip.Returned, gossip.Joined:
			// Its processes were reported as dead, and stay lost to those here. An admitted host is not new to
			// the detector.
			w.cfg.Log.Warn("host is back", "node", v.ID.String(), "verdict", v.Kind.String())
		default:
			w.cfg.Log.Info("host is done", "node", v.ID.String())
		}
	}
}

// deathReports calls Dead for each dead host once, apart from the detector, which must not wait for the
// callee.
type deathReports struct {
	w *Watch

	mu        sync.Mutex // not held during calls
	reported  map[overlay.NodeID]bool
	queue     []func() // at most one for each host
	isRunning bool
}

func (n *deathReports) add(h Host, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reported[h.Node] {
		return
	}
	n.reported[h.Node] = true
	n.queue = append(n.queue, func() { n.w.cfg.Dead(h, why) })
	if !n.isRunning {
		n.isRunning = true
		n.w.work.Go(n.run)
	}
}

func (n *deathReports) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.queue) > 0 {
		next := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		next()
		n.mu.Lock()
	}
	n.isRunning = false
}
