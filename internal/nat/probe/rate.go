package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/stun/v4"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// RateStep is a short run of datagrams to a STUN server at one rate.
type RateStep struct {
	Rate      uint64 // intended rate, in bits per second of IP packets
	Echoed    bool   // the answers were as large as the questions
	Sent      int    // datagrams
	Answered  int
	Offered   uint64 // actual sending rate of the second half, in bits per second
	Delivered uint64 // rate at which the second half got through, according to its answers
}

// limited reports whether clearly less got through than was sent.
func (s RateStep) limited() bool { return s.Delivered < s.Offered/4*3 }

// rates are the rates to try, each for rateTime and only if the previous one got through, so that a
// narrow site is not flooded: together 220 kB, and 520 kB where the fastest is limited, 660 kB if
// only inbound.
var rates = []uint64{64_000, 250_000, 1_000_000, 3_000_000}

// Bounds of a run.
const (
	rateTime      = 400 * time.Millisecond
	rateDatagrams = 30                     // minimum per run, unless they would be tiny
	minDatagram   = 120                    // bytes of IP packet, a multiple of four
	maxDatagram   = 1228                   // passes wherever IPv6 does
	rateLinger    = 1 * time.Second        // wait for a first answer, at least
	rateQuiet     = 250 * time.Millisecond // wait after the last answer, plus twice the time of the first
)

// lookRate sends datagrams at rising rates until they are limited. The answers are as large as the
// questions, which tests both directions at once; where these are limited, small answers show the
// outbound direction alone.
func (m *measurement) lookRate(ctx context.Context, to netip.AddrPort) {
	var c *net.UDPConn
	err := m.opts.Do(func() (err error) {
		c, err = dialUDP(ctx, to, nil)
		return err
	})
	if err != nil {
		m.add(func(o *Observations) { o.RateErr = shortError(err) })
		return
	}
	c.SetReadBuffer(1 << 20) // if the system does not grant it, the default must do
	r := newRateRun(c)
	r.linger = max(rateLinger, m.waits.estimate().RTO(1))
	var reading sync.WaitGroup
	reading.Go(r.read)
	defer reading.Wait()
	defer c.Close()
	steps := r.increaseRate(ctx, m.opts.Rates)
	m.add(func(o *Observations) { o.Rate = steps })
}

// increaseRate makes steps until one is limited and that is no accident: it must be limited twice,
// and a third time if small answers show no limit.
func (r *rateRun) increaseRate(ctx context.Context, rates []uint64) (steps []RateStep) {
	ok := true // false when ctx has ended
	limited := func(rate uint64, echoed bool, times int) bool {
		for range times {
			var step RateStep
			if step, ok = r.step(ctx, rate, echoed); !ok {
				return false
			}
			if steps = append(steps, step); !step.limited() {
				return false
			}
		}
		return true
	}
	for _, rate := range rates {
		if limited(rate, true, 2) {
			for _, higher := range ratesAbove(rates, steps[len(steps)-1].Delivered) {
				if limited(higher, false, 1) || !ok {
					return steps
				}
			}
			if limited(rate, true, 1) {
				return steps
			}
		}
		if !ok {
			return steps
		}
	}
	return steps
}

// ratesAbove returns the rates that may show a limit at or above rate.
func ratesAbove(rates []uint64, rate uint64) []uint64 {
	from := 0
	for from < len(rates)-1 && rates[from] < rate/2*3 {
		from++
	}
	return rates[from:]
}

// rateRun is one socket with its answers. Its reader and its sender share the current step.
type rateRun struct {
	c    *net.UDPConn
	mark [8]byte // begins the transaction ids of this run

	linger time.Duration // see rateLinger

	mu       sync.Mutex // guards the fields below
	base     uint32     // number of the step's first datagram
	sent     []time.Time
	arrivals []time.Time   // by datagram; zero: not yet
	left     int           // how many of arrivals are zero
	heard    chan struct{} // holds a value after an answer
}

func newRateRun(c *net.UDPConn) *rateRun {
	r := &rateRun{c: c, heard: make(chan struct{}, 1)}
	rand.Read(r.mark[:])
	return r
}

// shape returns the number and size of datagrams that make up a rate for rateTime.
func shape(rate uint64) (n, size int) {
	bytes := int(rate * uint64(rateTime) / uint64(time.Second) / 8)
	size = min(max(bytes/rateDatagrams, minDatagram), maxDatagram) &^ 3
	return max(bytes/size, 4), size
}

// step sends at one rate; it returns false when ctx ended meanwhile.
func (r *rateRun) step(ctx context.Context, rate uint64, echoed bool) (RateStep, bool) {
	n, size := shape(rate)
	r.begin(n)
	// Attributes from 0x8000 on may be ignored if not understood; padding is echoed.
	attr := stun.AttrType(0xfff0)
	if echoed {
		attr = stun.AttrPadding
	}
	var id [stun.TransactionIDSize]byte
	copy(id[:], r.mark[:])
	request := paddedRequest(id, attr, size)
	interval := time.Duration(uint64(size) * 8 * uint64(time.Second) / rate)
	begin := time.Now()
	for i := range n {
		if wait := time.Until(begin.Add(time.Duration(i) * interval)); wait > 0 && sleep.For(ctx, wait) != nil {
			return RateStep{}, false
		}
		r.mu.Lock()
		binary.BigEndian.PutUint32(request.Raw[8+len(r.mark):], r.base+uint32(i))
		r.sent[i] = time.Now()
		r.mu.Unlock()
		r.c.Write(request.Raw) // a failed write gets no answer
	}
	if !r.awaitAnswers(ctx) {
		return RateStep{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := judgeRun(r.sent, r.arrivals, size)
	s.Rate, s.Echoed = rate, echoed
	return s, true
}

// begin prepares for n datagrams of a new step.
func (r *rateRun) begin(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base += uint32(len(r.sent))
	r.sent, r.arrivals, r.left = make([]time.Time, n), make([]time.Time, n), n
}

// awaitAnswers waits until all answers arrived or no more are expected; it returns false when ctx ended.
func (r *rateRun) awaitAnswers(ctx context.Context) bool {
	end := time.NewTimer(r.linger)
	defer end.Stop()
	for {
		r.mu.Lock()
		left, trip := r.left, r.roundTrip()
		r.mu.Unlock()
		if left == 0 {
			return true
		}
		if trip > 0 {
			end.Reset(rateQuiet + 2*trip)
		}
		select {
		case <-r.heard:
		case <-end.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// roundTrip returns how long the first answer of the step took; 0 if there is none.
func (r *rateRun) roundTrip() time.Duration {
	for i, at := range r.arrivals {
		if !at.IsZero() {
			return at.Sub(r.sent[i])
		}
	}
	return 0
}

// read records answers until the socket is closed.
func (r *rateRun) read() {
	b := make([]byte, 1500)
	for {
		n, err := r.c.Read(b)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 20 || binary.BigEndian.Uint16(b) != stun.BindingSuccess.Value() || [8]byte(b[8:16]) != r.mark {
			continue
		}
		r.mu.Lock()
		if i := binary.BigEndian.Uint32(b[16:]) - r.base; i < uint32(len(r.arrivals)) && r.arrivals[i].IsZero() {
			r.arrivals[i] = now
			r.left--
		}
		r.mu.Unlock()
		select {
		case r.heard <- struct{}{}:
		default:
		}
	}
}

// judgeRun evaluates a run of datagrams of size bytes. Rates are those of its second half, when the
// burst that a limiter allows has been used up: a limiter that drops thins the answers, one that
// queues delays them more and more. A delay counts only when it lasts: an end that was suspended
// for a while then receives everything at once, and is no limiter.
func judgeRun(sent, came []time.Time, size int) RateStep {
	s := RateStep{Sent: len(sent)}
	half, quarter := len(sent)/2, len(sent)*3/4
	late := 0
	for i, at := range came {
		if at.IsZero() {
			continue
		}
		s.Answered++
		if i >= half {
			late++
		}
	}
	n := len(sent) - half
	span := widen(sent[len(sent)-1].Sub(sent[half]), n)
	s.Offered = perSecond(n*size, span)
	before, okBefore := shortest(sent[half:quarter], came[half:quarter])
	after, okAfter := shortest(sent[quarter:], came[quarter:])
	if okBefore && okAfter && after > before {
		span += 2 * (after - before) // the two are a quarter of the run apart
	}
	s.Delivered = perSecond(late*size, span)
	return s
}

// shortest returns the shortest time from a datagram to its answer.
func shortest(sent, came []time.Time) (trip time.Duration, ok bool) {
	for i, at := range came {
		if d := at.Sub(sent[i]); !at.IsZero() && (!ok || d < trip) {
			trip, ok = d, true
		}
	}
	return trip, ok
}

// widen extends the time between the first and the last of n to the time that n take.
func widen(between time.Duration, n int) time.Duration {
	if n < 2 {
		return between
	}
	return between * time.Duration(n) / time.Duration(n-1)
}

func perSecond(bytes int, span time.Duration) uint64 {
	return uint64(float64(bytes) * 8 / max(span.Seconds(), 1e-6))
}
