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
	class overlay.Technique // the smaller the better; 0 within a node
	rtt   time.Duration     // the least of many, or a handshake's, which takes no less: one that seems shorter is
}

func qualityOf(s stream.State) quality { return quality{pathOf(s.Carrier).Technique, s.Least} }

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
	if a.class != b.class {
		return a.class < b.class
	}
	if oneTunnel(a.class) {
		return false // their round trips differ by what is just under way
	}
	gain := b.rtt - a.rtt
	return gain >= shorter || gain > 0 && gain >= b.rtt/shorterPart
}

// How long to wait between looks, which double each time: up to mostRest when
// the link had something better once, for that may come back, and up to longRest when not.
const (
	firstLook = time.Second
	mostRest  = 16 * time.Second
	longRest  = 5 * time.Minute
	lookBound = 10 * time.Second
	leaving   = 2 * time.Second // between the last data on a carrier that is left and its end
)

// lookout decides when to look for a better path. It has no clock.
type lookout struct {
	best overlay.Technique // the best class so far; 0: none was used
	at   time.Time         // of the next look; zero: none is due
	rest time.Duration     // until the one after
}

// using notes which class is used now.
func (l *lookout) using(class overlay.Technique, now time.Time) {
	if l.best == 0 || class < l.best {
		l.best = class
	}
	if class == l.best && class != overlay.Relay && class != overlay.HolePunching {
		l.at, l.rest = time.Time{}, 0 // as good as it gets
		return
	}
	if l.at.IsZero() {
		l.rest = firstLook
		l.at = now.Add(l.rest)
	}
}

// looked notes that a look found nothing better than class.
func (l *lookout) looked(class overlay.Technique, now time.Time) {
	most := longRest
	if class > l.best {
		most = mostRest
	}
	l.rest = min(2*l.rest, most)
	l.at = now.Add(l.rest)
}

func (l *lookout) due(now time.Time) bool { return !l.at.IsZero() && !now.Before(l.at) }

// tick has the keeper look for a better path when it is time.
func (k *keeper) tick(now time.Time) {
	if !k.link.Dialled || k.link.Path.Technique == 0 {
		return
	}
	k.stripe(now)
	used, ok := k.used()
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookout.using(used.class, now)
	if !k.lookout.due(now) || k.improving || k.dialing || k.widening.under {
		return
	}
	k.improving = k.mesh.goes(func(ctx context.Context) {
		moved := k.improve(ctx)
		used, _ := k.used()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.improving = false
		if !moved {
			k.lookout.looked(used.class, time.Now())
		}
	})
}

// used returns the quality of the best path on which this end sends, or false
// when there is none.
func (k *keeper) used() (best quality, ok bool) {
	for _, c := range k.link.stream.Carriers() {
		if q := qualityOf(c); c.Used && (!ok || q.better(best)) {
			best, ok = q, true
		}
	}
	return best, ok
}

// improve tries to get a better carrier and reports whether the link moved.
func (k *keeper) improve(ctx context.Context) bool {
	for _, c := range k.link.stream.Carriers() {
		k.link.stream.Ask(c.Carrier) // to compare with: the answer is here before the dial is done
	}
	c, err := k.dial(ctx, lookBound, overlay.DirectOnly)
	if err != nil {
		return false
	}
	return k.choose(c)
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
			q = qualityOf(o)
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
		old := qualityOf(o)
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
