package gossip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Stats counts what a detector did.
type Stats struct {
	Gossips, Pings, Pongs uint64 // sent
	Refused               uint64 // entries of hosts beyond MaxMembers, and messages for another host
	Stalls                uint64 // times that this host was suspended
}

// Detector is the failure detector of one host. It is not safe for concurrent use.
//
// Its owner calls Step at the time that Next returns, or before, and Receive for each incoming
// message, with the time of its own clock, which must be monotonic.
type Detector struct {
	cfg   Config
	self  Entry
	round uint64 // of the last period
	seen  uint64 // highest round in a message
	due   time.Time
	awake time.Time // time of the last call
	peers map[overlay.NodeID]*peer
	names []overlay.NodeID // names of peers, sorted, so that runs are reproducible
	ring  []overlay.NodeID // the living hosts, and this one, by name
	stats Stats
}

type state uint8

const (
	alive     state = iota // or never heard of
	suspected              // pinged
	failed
	left
)

// peer is the state of another host.
//
//	        no news          no pong
//	alive ----------> suspected ----> failed
//	  ^                   |              |
//	  +---- any news -----+--- news -----+     a leave leads to left from anywhere
type peer struct {
	Entry           // Age is unused; Incarnation 0: never heard of
	fresh time.Time // when the heartbeat was sent, by this host's clock
	state state
	until time.Time // suspected: when it is declared failed
	ping  time.Time // suspected: when it is pinged again
}

// New returns the detector of host self. The incarnation must be 1 or more and higher than at any
// earlier start; the time of day in nanoseconds will do. The detector expects to hear of members,
// which may include self. Its first message is due now.
func New(cfg Config, self overlay.NodeID, incarnation uint64, members []overlay.NodeID, now time.Time) (*Detector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if incarnation == 0 || len(members) > MaxMembers {
		return nil, fmt.Errorf("gossip: incarnation %d and %d members; want 1 or more, and at most %d", incarnation, len(members), MaxMembers)
	}
	d := &Detector{
		cfg: cfg, self: Entry{ID: self, Incarnation: incarnation}, due: now, awake: now,
		peers: make(map[overlay.NodeID]*peer, len(members)), ring: []overlay.NodeID{self},
	}
	for _, id := range members {
		d.Add(id, now)
	}
	return d, nil
}

// Resume makes the detector continue the one that this host ran before its restart, with the same
// incarnation: to others it was only silent. heartbeat must exceed any that the earlier detector
// can have reached. Call it first.
func (d *Detector) Resume(heartbeat uint64) { d.self.Heartbeat = heartbeat }

// Next returns when Step is due; after Leave that is a day away.
func (d *Detector) Next() time.Time {
	if d.self.Left {
		return d.awake.Add(24 * time.Hour)
	}
	next := d.due
	after := d.cfg.suspectAfter(len(d.ring))
	for _, p := range d.peers {
		at := next
		switch p.state {
		case alive:
			at = p.fresh.Add(after + p.startTime(d.cfg))
		case suspected:
			at = p.ping
			if p.until.Before(at) {
				at = p.until
			}
		}
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// Stats returns the counts so far.
func (d *Detector) Stats() Stats { return d.stats }

// Add adds a host that a registry lists. It does not change one that is known and alive; one that
// was declared failed is pinged once more. Hosts that are not added are learned by gossip.
func (d *Detector) Add(id overlay.NodeID, now time.Time) (out Output) {
	p := d.peers[id]
	switch {
	case id == d.self.ID || d.self.Left:
	case p == nil:
		if d.admit(id, now) == nil {
			d.stats.Refused++
		}
	case p.state == failed:
		d.ask(p, &out)
	}
	return out
}

// Step does what is due: the period's message, suspicions, pings and verdicts.
func (d *Detector) Step(now time.Time) (out Output) {
	d.wake(now)
	if d.self.Left {
		return out
	}
	if !now.Before(d.due) {
		d.gossip(now, &out)
	}
	for i := len(d.names) - 1; i >= 0; i-- { // watch may delete the i-th
		d.watch(d.peers[d.names[i]], now, &out)
	}
	return out
}

// Receive handles a message. Its entry about the sender is merged like the others.
func (d *Detector) Receive(m Message, now time.Time) (out Output) {
	d.wake(now)
	if m.To != d.self.ID || m.From == d.self.ID || len(m.Entries) > MaxMembers+1 || d.self.Left {
		d.stats.Refused++
		return out
	}
	d.seen = max(d.seen, m.Round)
	for i := range m.Entries {
		d.merge(&m.Entries[i], now, &out)
	}
	if m.Kind == Ping {
		d.stats.Pongs++
		out.Send = append(out.Send, d.message(m.From, Pong, nil))
	}
	return out
}

// Leave announces that this host leaves: it sends to the targets of every step, which tell the
// others. The detector is inactive from then on.
func (d *Detector) Leave(now time.Time) (out Output) {
	d.wake(now)
	if d.self.Left {
		return out
	}
	d.self.Left = true
	for s := range steps(len(d.ring)) {
		if to, ok := d.hostAtDistance(1 << s); ok {
			d.stats.Gossips++
			out.Send = append(out.Send, d.message(to, Gossip, nil))
		}
	}
	return out
}

// Living returns the hosts that are not declared failed, and this one, by name.
func (d *Detector) Living() []overlay.NodeID { return slices.Clone(d.ring) }

// wake records the time of a call. It excludes a time in which this host was suspended from all
// timeouts: it could not receive anything.
func (d *Detector) wake(now time.Time) {
	if gap := now.Sub(d.awake); gap > 2*d.cfg.Period {
		d.stats.Stalls++
		for _, p := range d.peers {
			p.fresh, p.until, p.ping = p.fresh.Add(gap), p.until.Add(gap), p.ping.Add(gap)
		}
	}
	d.awake = now
}

// gossip sends the period's message.
func (d *Detector) gossip(now time.Time, out *Output) {
	// Missed periods are skipped: other hosts need recent news, not many messages.
	if d.due = d.due.Add(d.cfg.Period); !now.Before(d.due) {
		d.due = now.Add(d.cfg.Period)
	}
	d.round = max(d.round+1, d.seen)
	to, ok := d.hostAtDistance(d.cfg.target(d.round, len(d.ring)))
	if !ok {
		return // no other hosts
	}
	d.stats.Gossips++
	out.Send = append(out.Send, d.message(to, Gossip, d.entriesToSend(now)))
}

// hostAtDistance returns the host that many places further on the ring.
func (d *Detector) hostAtDistance(places int) (id overlay.NodeID, ok bool) {
	me, _ := slices.BinarySearchFunc(d.ring, d.self.ID, byName)
	id = d.ring[(me+places)%len(d.ring)]
	return id, id != d.self.ID
}

// entriesToSend returns the entries about other hosts: except of failed ones, which every host detects
// itself, and of those never heard of.
func (d *Detector) entriesToSend(now time.Time) []Entry {
	list := make([]Entry, 0, len(d.peers))
	for _, id := range d.names {
		if p := d.peers[id]; p.Incarnation > 0 && p.state != failed {
			e := p.Entry
			e.Age = max(0, now.Sub(p.fresh))
			list = append(list, e)
		}
	}
	return list
}

// message returns a message of this host, whose first entry is the host itself. Each message
// carries a new heartbeat: a pong must be news to the host that asked.
func (d *Detector) message(to overlay.NodeID, kind Kind, news []Entry) Message {
	d.self.Heartbeat++
	return Message{From: d.self.ID, To: to, Kind: kind, Round: d.round, Entries: append([]Entry{d.self}, news...)}
}

// watch handles the timeouts of one peer.
func (d *Detector) watch(p *peer, now time.Time, out *Output) {
	switch p.state {
	case alive:
		if now.Sub(p.fresh) < d.cfg.suspectAfter(len(d.ring))+p.startTime(d.cfg) {
			return
		}
		p.state, p.until = suspected, now.Add(d.cfg.Ping)
		d.ask(p, out)
		p.ping = now.Add(d.cfg.Ping/3 + 1)
	case suspected:
		if !now.Before(p.until) {
			d.fail(p, now, "no news and no answer to pings", out)
		} else if !now.Before(p.ping) {
			d.ask(p, out)
			p.ping = now.Add(d.cfg.Ping/3 + 1)
		}
	default:
		// An entry older than this is never accepted as new, so entries that still circulate cannot
		// revive the peer.
		if now.Sub(p.fresh) > 2*d.cfg.Bound(MaxMembers) {
			d.forget(p)
		}
	}
}

// startTime returns how much longer than others a host may be silent that was never heard of.
func (p *peer) startTime(c Config) time.Duration {
	if p.Incarnation > 0 {
		return 0
	}
	return c.Start
}

func (d *Detector) ask(p *peer, out *Output) {
	d.stats.Pings++
	out.Send = append(out.Send, d.message(p.ID, Ping, nil))
}

func (d *Detector) fail(p *peer, now time.Time, reason string, out *Output) {
	if p.Incarnation == 0 {
		reason = "it was listed and never heard of"
	}
	p.state = failed
	d.setRing()
	out.Verdicts = append(out.Verdicts, Verdict{ID: p.ID, Incarnation: p.Incarnation, Kind: Failed, Silent: now.Sub(p.fresh), Reason: reason})
}

// admit adds a peer, unless there are too many.
func (d *Detector) admit(id overlay.NodeID, now time.Time) *peer {
	if len(d.peers) >= MaxMembers {
		return nil
	}
	p := &peer{Entry: Entry{ID: id}, fresh: now}
	d.peers[id] = p
	at, _ := slices.BinarySearchFunc(d.names, id, byName)
	d.names = slices.Insert(d.names, at, id)
	d.setRing()
	return p
}

func (d *Detector) forget(p *peer) {
	delete(d.peers, p.ID)
	at, _ := slices.BinarySearchFunc(d.names, p.ID, byName)
	d.names = slices.Delete(d.names, at, at+1)
}

func (d *Detector) setRing() {
	d.ring = d.ring[:0]
	for _, id := range d.names {
		if p := d.peers[id]; p.state == alive || p.state == suspected {
			d.ring = append(d.ring, id)
		}
	}
	at, _ := slices.BinarySearchFunc(d.ring, d.self.ID, byName)
	d.ring = slices.Insert(d.ring, at, d.self.ID)
}

func byName(a, b overlay.NodeID) int {
	if c := strings.Compare(string(a.Site), string(b.Site)); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
