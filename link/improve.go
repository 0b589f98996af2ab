package link

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file moves a link to a better path. A link starts on whatever comes
// first, and falls back to what works when its path dies; the end that dialled
// it then looks for something better, less and less often. A better carrier
// is attached before the worse one is left (make before break). A relay that is left stays
// as it is, warm; others are closed a little later.

// quality is what paths are compared by.
type quality struct {
	avoided bool              // it was measured to be worse than its class promises (rank.go), which counts for more than all else
	class   overlay.Technique // the smaller the better; 0 within a node
	rtt     time.Duration     // the least of many, or a handshake's, which takes no less: one that seems shorter is
	small   bool              // packets, which is worse
}

func (k *keeper) qualityOf(s stream.State) quality {
	path := pathOf(s.Carrier)
	k.mu.Lock()
	defer k.mu.Unlock()
	_, avoided := k.ranker.avoids(path.Technique, time.Now())
	return quality{avoided, path.Technique, s.Least, path.Small}
}

// Paths of one class differ by enough to move when the round trip is shorter by
// one of these.
const (
	shorter     = 5 * time.Millisecond
	shorterPart = 10 // one tenth
)

// oneTunnel reports whether all connections of a technique between two nodes take one
// path and share what that carries: punched ones are streams of one tunnel.
func oneTunnel(class overlay.Technique) bool { return class == overlay.HolePunching }

// better reports whether a link on path b should move to path a.
func (a quality) better(b quality) bool {
	if a.avoided != b.avoided {
		return b.avoided
	}
	if a.class != b.class {
		return a.class < b.class
	}
	if a.small != b.small {
		return b.small
	}
	if oneTunnel(a.class) {
		return false // their round trips differ by what is just under way
	}
	gain := b.rtt - a.rtt
	return gain >= shorter || gain > 0 && gain >= b.rtt/shorterPart
}

// How long to wait between looks, which double each time: up to maxRest when
// the link had something better once, for that may come back, and up to longRest when not.
const (
	firstLook = 250 * time.Millisecond
	afterFall = time.Second // in its place, where there was something better a moment ago
	maxRest   = 16 * time.Second
	longRest  = 5 * time.Minute
	smallRest = 30 * time.Second // where packets are small: the helper remembers when to try larger ones
	lookBound = 5 * time.Second  // and lookRTTs, while packets of full size may vanish, and nothing waits
	lookRTTs  = 10               // of the path in use: two ends that dial at an agreed instant take as many
	leaving   = 2 * time.Second  // between the last data on a carrier that is left and its end
)

// lookout decides when to look for a better path. It has no clock.
type lookout struct {
	best overlay.Technique // the best class so far; 0: none was used
	at   time.Time         // of the next look; zero: none is due
	rest time.Duration     // until the one after

	hurried bool // see hurry
}

// using notes which class is used now, and whether with small packets.
func (l *lookout) using(class overlay.Technique, small bool, now time.Time) {
	if l.best == 0 || class < l.best {
		l.best = class
	}
	if class == l.best && class != overlay.Relay && class != overlay.HolePunching && !small {
		l.at, l.rest = time.Time{}, 0 // as good as it gets
		return
	}
	if l.at.IsZero() {
		l.rest = firstLook
		if class > l.best {
			l.rest = afterFall
		}
		l.at = now.Add(l.rest)
	}
}

// looked notes that a look found nothing better than class, with small packets or not.
func (l *lookout) looked(class overlay.Technique, small bool, now time.Time) {
	most := longRest
	switch {
	case class > l.best:
		most = maxRest
	case small:
		most = smallRest
	}
	l.rest = min(2*l.rest, most)
	l.at = now.Add(l.rest)
}

// checkSoon has the first look made at once: a better path is known to exist. It does
// so once, and not for a link that had a better path and lost it: on a machine or network
// in trouble links would go to and fro all the faster.
func (l *lookout) checkSoon(now time.Time) {
	if l.at.After(now) && !l.hurried && l.best == overlay.Relay {
		l.at, l.hurried = now, true
	}
}

func (l *lookout) due(now time.Time) bool { return !l.at.IsZero() && !now.Before(l.at) }

// tick has the keeper look for a better path when it is time.
func (k *keeper) tick(now time.Time) {
	if k.link.Path.Technique == 0 {
		return
	}
	k.watchLoss(now)
	if !k.link.Dialled {
		return
	}
	if !k.rank(now) {
		k.stripe(now)
	}
	used, ok := k.usedQuality()
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookout.using(used.class, used.small, now)
	if !k.lookout.due(now) || k.improving || k.dialing || k.widening.under || k.ranker.trying {
		return
	}
	if _, avoided := k.ranker.avoids(k.lookout.best, now); avoided {
		return // that is what would be found
	}
	k.improving = k.mesh.spawn(func(ctx context.Context) {
		moved := k.improve(ctx, used)
		used, _ := k.usedQuality()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.improving = false
		if !moved {
			k.lookout.looked(used.class, used.small, time.Now())
		}
	})
}

// reached notes that a process at a site was reached by a path. Links to processes of
// that site that are on worse ones look for a better one at once: where one pair of
// nodes meets, others do, too.
func (m *Mesh) reached(path overlay.Path) {
	now := time.Now()
	for _, k := range m.kept() {
		if q, ok := k.usedQuality(); k.link.Path.Peer.Site == path.Peer.Site && ok && path.Technique < q.class {
			k.mu.Lock()
			k.lookout.checkSoon(now)
			k.mu.Unlock()
		}
	}
}

// usedQuality returns the quality of the best path on which this end sends, or false
// when there is none.
func (k *keeper) usedQuality() (best quality, ok bool) {
	for _, c := range k.link.stream.Carriers() {
		if q := k.qualityOf(c); c.Used && (!ok || q.better(best)) {
			best, ok = q, true
		}
	}
	return best, ok
}

// waysUp returns what to dial, in turn, for a better carrier than one of a quality:
// from a relay another technique, and from small packets those of full size.
func (q quality) waysUp() (ways []overlay.Ways) {
	if !q.small || q.class == overlay.Relay {
		ways = append(ways, overlay.DirectOnly)
	}
	if q.small {
		ways = append(ways, overlay.AllWays|overlay.FullPackets)
	}
	return ways
}

// improve tries to get a better carrier than one of a quality, and reports whether
// the link moved.
func (k *keeper) improve(ctx context.Context, than quality) bool {
	for _, c := range k.link.stream.Carriers() {
		k.link.stream.Ask(c.Carrier) // to compare with: the answer is here before the dial is done
	}
	for _, ways := range than.waysUp() {
		if c, err := k.dial(ctx, lookBound+lookRTTs*than.rtt, ways); err == nil && k.choose(c) {
			return true
		}
	}
	return false
}

var (
	errBetter = errors.New("a better path was found")
	errWorse  = errors.New("the path is no better than what there is")
)

// choose moves the link to a carrier that it was given, or leaves it. Of several
// relays one is kept. A better one takes over from all that there are; from
// several of its own technique none does, for they are more together.
func (k *keeper) choose(c *stream.Carrier) bool {
	s := k.link.stream
	var q quality
	var others []stream.State
	relays, used := 0, 0
	for _, o := range s.Carriers() {
		technique := pathOf(o.Carrier).Technique
		switch {
		case o.Carrier == c:
			q = k.qualityOf(o)
			continue
		case o.Silent:
		case technique == overlay.Relay:
			relays++
		}
		if o.Used && !o.Silent {
			used++
		}
		others = append(others, o)
	}
	for _, o := range others {
		old := k.qualityOf(o)
		if o.Silent || q.better(old) && !(used > 1 && q.class == old.class) {
			continue
		}
		if q.class != overlay.Relay || relays > 0 {
			k.leave(c, errWorse)
		}
		return false
	}
	s.Use(c, 1)
	warm := q.class == overlay.Relay
	for _, o := range others {
		s.Use(o.Carrier, 0)
		if warm || pathOf(o.Carrier).Technique != overlay.Relay {
			k.leave(o.Carrier, errBetter)
		} else {
			warm = true
		}
	}
	return true
}

// leave ends a carrier when what is under way on it has had its time, unless
// there is no other to go on with then.
func (k *keeper) leave(c *stream.Carrier, why error) {
	left := &c.About.(*about).left
	left.Store(true)
	time.AfterFunc(leaving, func() {
		for _, o := range k.link.stream.Carriers() {
			if o.Carrier != c && !o.Silent {
				k.link.stream.Drop(c, why)
				return
			}
		}
		left.Store(false)
	})
}
