// Package watch finds out, on one host of a job, which of the job's other hosts
// have died, so that the job's processes here can be told of those that were there.
// It runs the failure detector of package gossip with a real clock: one for each job
// and host, apart from the job's processes, which may be busy, stopped or gone.
//
// It knows no sockets: a Carrier takes messages to the watches of the same job on
// other hosts, and whoever receives them hands them to Receive. It does not know what
// processes are, either; a host comes with the ranks that are there, and goes with
// them to Config.Dead.
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
	// maxIncoming bounds the messages that wait for the detector. Further ones are
	// dropped and counted: others come, with later news.
	maxIncoming = 256
	// sendTimeout bounds the sending of a message. One that takes longer is no news.
	sendTimeout = 5 * time.Second
	// farewell bounds how long the end of a watch is told to others. Who does not hear
	// of it hears it from others.
	farewell = 2 * time.Second
	// settling is how long a watch waits before its first word: jobs that are over by
	// then need no watch, and many hosts that all begin at once no more to do.
	settling = 2 * time.Second
)

// ErrOver is what a Carrier wraps when the other host answers that it does not watch
// the job (any more). A host that says so when it is about to be taken for dead is not:
// its processes have ended.
var ErrOver = errors.New("the job is over there")

// ErrHandedOver is the cause with which the context of Serve ends where another watch will
// go on with the job: the other hosts are not told that it is over here.
var ErrHandedOver = errors.New("another watch goes on")

// A Carrier takes messages to other hosts.
type Carrier interface {
	// Send takes a message to the watch of the same job on another host, which is
	// handed it with the name of this host. It returns when the message is there, or
	// with an error when it may not be or ctx has ended (ErrOver where there is no such
	// watch); messages may get lost. It is
	// safe for concurrent use, and does not keep the message.
	Send(ctx context.Context, to overlay.NodeID, message []byte) error
}

// Host is a host of a job.
type Host struct {
	Node  overlay.NodeID
	Ranks []uint32 // of the processes there
}

// Config says what to watch. The hosts and Gossip are the same on all hosts.
type Config struct {
	Self    overlay.NodeID // one of Hosts
	Hosts   []Host         // all of the job; the watch keeps it
	Gossip  gossip.Config
	Carrier Carrier

	// Since is when the job began here, if another watch was there before this one, whose
	// work this one goes on with, after ErrHandedOver or without a word; zero: now.
	Since time.Time

	// Dead is called for each host that is taken for dead, once, and why. One call is
	// made at a time, by a goroutine of Serve.
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
	work sync.WaitGroup // of mail and news; Serve waits for it
}

// New returns a watch that does nothing until Serve. It fails on hosts that are no
// hosts, or twice there, or do not have the watch's own among them, and on a bad
// Gossip.
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
	w.news = news{w: w, told: map[overlay.NodeID]bool{}}
	return w, nil
}

func (w *Watch) detector(now time.Time) (*gossip.Detector, error) {
	members := make([]overlay.NodeID, 0, len(w.hosts))
	for _, h := range w.cfg.Hosts {
		members = append(members, h.Node)
	}
	// The time of day rises from one start of the host to the next.
	if w.cfg.Since.IsZero() {
		return gossip.New(w.cfg.Gossip, w.cfg.Self, uint64(now.UnixNano()), members, now)
	}
	d, err := gossip.New(w.cfg.Gossip, w.cfg.Self, uint64(w.cfg.Since.UnixNano()), members, now)
	if err == nil {
		d.Resume(uint64(max(now.Sub(w.cfg.Since).Milliseconds(), 0))) // a step takes longer than that
	}
	return d, err
}

// Bound returns for how long a dead host may pass for living.
func (w *Watch) Bound() time.Duration { return w.cfg.Gossip.Bound(len(w.hosts)) }

// Dropped returns how many messages were dropped because too many came at a time.
func (w *Watch) Dropped() uint64 { return w.dropped.Load() }

// Serve watches until ctx ends: when the job is over here. It tells the other hosts
// so, unless that is within its first 2 s, in which it is silent, or the cause is
// ErrHandedOver. It returns when everything that it started has ended,
// after what Dead is told and at most 2 s more. Call it once.
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

// settleTime is how long the watch is silent at first. One that goes on with another's work
// has no time to lose.
func (w *Watch) settleTime() time.Duration {
	if !w.cfg.Since.IsZero() && time.Since(w.cfg.Since) > settling {
		return 0
	}
	return settling
}

// Receive hands the watch a message that came from another host, which is the one
// that sent it for certain. An error says that it is none of the job's; the sender is
// wrong then. It is safe for concurrent use, and does not wait.
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

// do carries out what the detector says.
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
			// Its processes have been told of, and stay lost for those here.
			w.cfg.Log.Warn("host is back", "node", v.ID.String(), "verdict", v.Kind.String())
		default:
			w.cfg.Log.Info("host is done", "node", v.ID.String())
		}
	}
}

// news tells of dead hosts, each once, beside the detector, which must not wait for
// whoever listens.
type news struct {
	w *Watch

	mu      sync.Mutex // not held while telling
	told    map[overlay.NodeID]bool
	queue   []func() // one for each host at most
	telling bool
}

func (n *news) add(h Host, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[h.Node] {
		return
	}
	n.told[h.Node] = true
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
