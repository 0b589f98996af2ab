package link

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file moves a link to a better path. A link starts on the first path that connects, and falls
// back to what works when its path dies; the end that dialled the link then looks for a better
// path, less and less often. It attaches the better carrier before it leaves the worse one (make
// before break). A relay that is left stays attached, as a warm standby; other carriers are closed
// a little later.

// quality is the set of properties by which paths are compared.
type quality struct {
	avoided bool              // measured to be worse than its class suggests (rank.go); takes precedence over all other fields
	class   overlay.Technique // smaller is better; 0 within a node
	rtt     time.Duration     // the minimum of many, or a handshake's, which is no shorter: if it seems shorter, it is
	small   bool              // small packets, which is worse
}

func (sv *supervisor) qualityOf(s stream.State) quality {
	path := pathOf(s.Carrier)
	sv.mu.Lock()
	defer sv.mu.Unlock()
	_, avoided := sv.ranker.avoids(path.Technique, time.Now())
	return quality{avoided, path.Technique, s.Least, path.Small}
}

// Among paths of one class, a link moves when the round trip is shorter by either of these.
const (
	shorter     = 5 * time.Millisecond
	shorterPart = 10 // one tenth
)

// oneTunnel reports whether all connections of a technique between two nodes share one path and its
// capacity: punched connections are streams of one tunnel.
func oneTunnel(class overlay.Technique) bool { return class.Kind() == overlay.BothSend }

// better reports whether a link on path b should move to path a.
func (a quality) better(b quality) bool {
	if a.avoided != b.avoided {
		return b.avoided
	}
	if a.class != b.class {
		return a.class.PreferredTo(b.class)
	}
	if a.small != b.small {
		return b.small
	}
	if oneTunnel(a.class) {
		return false // their round trips differ only by the current load
	}
	gain := b.rtt - a.rtt
	return gain >= shorter || gain > 0 && gain >= b.rtt/shorterPart
}

// The time between looks doubles each time: up to maxReturnInterval if the link once had something better,
// which may come back, and up to maxInterval otherwise.
const (
	firstLook         = 250 * time.Millisecond
	afterFall         = time.Second // instead, if the link had something better a moment ago
	lastedFor         = 4           // see fall
	maxReturnInterval = 16 * time.Second
	maxInterval       = 5 * time.Minute
	maxSmallInterval  = 30 * time.Second // where packets are small: the helper remembers when to try larger ones
	lookBound         = 5 * time.Second  // plus lookRTTs: bound of one look while full-sized packets may vanish; nothing waits for it
	lookRTTs          = 10               // of the path in use: two ends that dial at an agreed instant take as many
	redialRTTs        = 6                // that a dial and the link's handshake take, beginning when a carrier falls silent
	leaving           = 2 * time.Second  // from the last data on a carrier that is left to its close
)

// lookout decides when to look for a better path. It uses no clock.
type lookout struct {
	best     overlay.Technique // best class so far; 0: none was used
	at       time.Time         // of the next look; zero: none is due
	interval time.Duration     // until the look after that

	since     time.Time     // when the best class was used again; zero: it is not in use
	afterFall time.Duration // until the first look after the latest fall from it; see fall

	hurried bool // see checkSoon
}

// using records which class is used now, and whether with small packets.
func (l *lookout) using(class overlay.Technique, small bool, now time.Time) {
	if l.best == 0 || class.PreferredTo(l.best) {
		l.best = class
	}
	if class == l.best && class != overlay.Relay && !oneTunnel(class) && !small {
		l.at, l.interval = time.Time{}, 0 // no better path is possible
		if l.since.IsZero() {
			l.since = now
		}
		return
	}
	if l.at.IsZero() {
		l.interval = firstLook
		if l.best.PreferredTo(class) {
			l.interval = l.fall(now)
		}
		l.at = now.Add(l.interval)
	}
	l.since = time.Time{}
}

// fall returns the time until the first look after the link has fallen from its best class. It
// doubles when that lasted less than lastedFor times as long: a path may connect, and carry nothing.
func (l *lookout) fall(now time.Time) time.Duration {
	lasted := now.Sub(l.since)
	switch {
	case l.since.IsZero():
	case l.afterFall > 0 && lasted < lastedFor*l.afterFall:
		l.afterFall = min(2*l.afterFall, maxReturnInterval)
	default:
		l.afterFall = afterFall
	}
	return max(l.afterFall, afterFall)
}

// looked records that a look found nothing better than class; small says whether with small
// packets.
func (l *lookout) looked(class overlay.Technique, small bool, now time.Time) {
	most := maxInterval
	switch {
	case l.best.PreferredTo(class):
		most = maxReturnInterval
	case small:
		most = maxSmallInterval
	}
	l.interval = min(2*l.interval, most)
	l.at = now.Add(l.interval)
}

// checkSoon makes the first look due at once, because a better path is known to exist. It does so
// once per link, and not for a link that had a better path and lost it: on a machine or network in
// trouble that would only make links alternate faster between paths.
func (l *lookout) checkSoon(now time.Time) {
	if l.at.After(now) && !l.hurried && l.best == overlay.Relay {
		l.at, l.hurried = now, true
	}
}

// restart makes the next looks come as after the first fall: this host, or the peer's, may be in another network now.
func (l *lookout) restart(now time.Time) {
	l.afterFall, l.hurried = 0, false
	if !l.at.IsZero() {
		l.at, l.interval = now.Add(afterFall), afterFall
	}
}

func (l *lookout) due(now time.Time) bool { return !l.at.IsZero() && !now.Before(l.at) }

// tick makes the supervisor look for a better path when a look is due.
func (sv *supervisor) tick(now time.Time) {
	if sv.link.Path.Technique == 0 {
		return
	}
	sv.watchLoss(now)
	sv.checkAddresses(now)
	if !sv.link.Dialled {
		return
	}
	if !sv.rank(now) {
		sv.stripe(now)
	}
	used, ok := sv.usedQuality()
	if !ok {
		return
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.lookout.using(used.class, used.small, now)
	if !sv.lookout.due(now) || sv.improving || sv.dialing || sv.widening.under || sv.ranker.trying {
		return
	}
	if _, avoided := sv.ranker.avoids(sv.lookout.best, now); avoided {
		return // a look would find only that class
	}
	sv.improving = sv.mesh.spawn(func(ctx context.Context) {
		moved := sv.improve(ctx, used)
		used, _ := sv.usedQuality()
		sv.mu.Lock()
		defer sv.mu.Unlock()
		sv.improving = false
		if !moved {
			sv.lookout.looked(used.class, used.small, time.Now())
		}
	})
}

// reached records that a process at a site was reached by a path. Links to processes of that site
// on worse paths look for a better one at once: where one pair of nodes can connect directly,
// others probably can too.
func (m *Mesh) reached(path overlay.Path) {
	now := time.Now()
	for _, sv := range m.kept() {
		if q, ok := sv.usedQuality(); sv.link.Path.Peer.Site == path.Peer.Site && ok && path.Technique.PreferredTo(q.class) {
			sv.mu.Lock()
			sv.lookout.checkSoon(now)
			sv.mu.Unlock()
		}
	}
}

// usedQuality returns the quality of the best path on which this end sends, or false
// when there is none.
func (sv *supervisor) usedQuality() (best quality, ok bool) {
	for _, c := range sv.link.stream.Carriers() {
		if q := sv.qualityOf(c); c.Used && (!ok || q.better(best)) {
			best, ok = q, true
		}
	}
	return best, ok
}

// waysUp returns what to dial, in order, for a better carrier than one of quality q: another
// technique instead of a relay, and full-sized packets instead of small ones.
func (q quality) waysUp() (ways []overlay.Ways) {
	if !q.small || q.class == overlay.Relay {
		ways = append(ways, overlay.DirectOnly)
	}
	if q.small {
		ways = append(ways, overlay.AllWays|overlay.FullPackets)
	}
	return ways
}

// improve tries to get a better carrier than one of quality than, and reports whether the link
// moved.
func (sv *supervisor) improve(ctx context.Context, than quality) bool {
	if c := sv.idleBetter(than); c != nil && sv.choose(c) {
		return true
	}
	for _, c := range sv.link.stream.Carriers() {
		sv.link.stream.Ask(c.Carrier) // for the comparison; the answer arrives before the dial is done
	}
	for _, ways := range than.waysUp() {
		if c, err := sv.dial(ctx, lookBound+lookRTTs*than.rtt, ways); err == nil && sv.choose(c) {
			return true
		}
	}
	return false
}

// idleBetter returns the best carrier that is not in use although it is better than one of quality
// than, or nil. There is one after the other end dialled it while this one used another of that
// kind, which was then left; a new carrier is compared with it, and would be worse.
func (sv *supervisor) idleBetter(than quality) (best *stream.Carrier) {
	for _, c := range sv.link.stream.Carriers() {
		if c.Used || c.Silent || c.Carrier.Owner.(*carrierInfo).left.Load() {
			continue
		}
		if q := sv.qualityOf(c); q.better(than) {
			best, than = c.Carrier, q
		}
	}
	return best
}

var (
	errBetter = errors.New("a better path was found")
	errWorse  = errors.New("the path is no better than what there is")
)

// replaces reports whether a new carrier replaces a living one that is in use with used-1 others.
// Several of one technique are not replaced by another of it, because together they carry more. A
// class whose path fell silent a moment ago does not replace a lower one: on a path that is policed, a
// connection succeeds and then carries next to nothing, so that the link would stand still twice in
// a row. The next look finds the class again.
func (q quality) replaces(old quality, used int, fell bool) bool {
	if q.class == old.class {
		return used <= 1 && q.better(old)
	}
	return q.better(old) && !(fell && q.class.PreferredTo(old.class))
}

// choose moves the link to carrier c, or closes c. If there are several relays, one is kept. A
// better carrier replaces all others.
func (sv *supervisor) choose(c *stream.Carrier) bool {
	s := sv.link.stream
	var q quality
	var others []stream.State
	relays, used := 0, 0
	fell := false
	for _, o := range s.Carriers() {
		technique := pathOf(o.Carrier).Technique
		switch {
		case o.Carrier == c:
			q = sv.qualityOf(o)
			continue
		case o.Silent:
			fell = fell || samePath(technique, pathOf(c).Technique)
		case technique == overlay.Relay:
			relays++
		}
		if o.Used && !o.Silent {
			used++
		}
		others = append(others, o)
	}
	fell = fell || sv.fellLately(q.class, q.rtt)
	for _, o := range others {
		old := sv.qualityOf(o)
		if o.Silent || q.replaces(old, used, fell) {
			continue
		}
		if q.class != overlay.Relay || relays > 0 {
			sv.leave(c, errWorse)
		}
		return false
	}
	s.Use(c, 1)
	warm := q.class == overlay.Relay
	for _, o := range others {
		s.Use(o.Carrier, 0)
		if warm || pathOf(o.Carrier).Technique != overlay.Relay {
			sv.leave(o.Carrier, errBetter)
		} else {
			warm = true
		}
	}
	return true
}

// leave closes a carrier after data in flight on it has had time to arrive, unless by then the link
// has no other carrier.
func (sv *supervisor) leave(c *stream.Carrier, why error) {
	left := &c.Owner.(*carrierInfo).left
	left.Store(true)
	time.AfterFunc(leaving, func() {
		for _, o := range sv.link.stream.Carriers() {
			if o.Carrier != c && !o.Silent {
				sv.link.stream.Drop(c, why)
				return
			}
		}
		left.Store(false)
	})
}
