package storm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	tallies "github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// plan is what is sent, the same on every rank.
type plan struct {
	seed uint64
	max  int // bytes
}

const (
	headerLen = 16 // of a message: round, from, to, size
	window    = 8  // messages to others that a rank has in flight, and from others
)

// rng returns what chooses everything about a message: both ends know it.
func (p plan) rng(round, from, to int) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed+uint64(round), uint64(from)<<32|uint64(to)))
}

// size is that of a message, of any order of magnitude.
func (p plan) size(rng *rand.Rand) int {
	orders := 0
	for most := p.max - headerLen; most > 0; most >>= 1 {
		orders++
	}
	return headerLen + min(p.max-headerLen, rng.IntN(1<<rng.IntN(orders+1)))
}

// fill makes a message: whose it is, and bytes that follow from that.
func fill(buf []byte, round, from, to int) {
	for i, v := range [...]int{round, from, to, len(buf)} {
		binary.LittleEndian.PutUint32(buf[4*i:], uint32(v))
	}
	for i := headerLen; i < len(buf); i++ {
		buf[i] = byte(i*7 + round + 3*from + 5*to)
	}
}

// check reports what of a message is other than it was sent.
func check(buf []byte, round, from, to int) error {
	want := [...]int{round, from, to, len(buf)}
	for i, name := range [...]string{"round", "from rank", "to rank", "size"} {
		if got := int(binary.LittleEndian.Uint32(buf[4*i:])); got != want[i] {
			return fmt.Errorf("a message of %d bytes from rank %d, round %d: %s is %d, want %d", len(buf), from, round, name, got, want[i])
		}
	}
	for i := headerLen; i < len(buf); i++ {
		if b := byte(i*7 + round + 3*from + 5*to); buf[i] != b {
			return fmt.Errorf("a message of %d bytes from rank %d, round %d: byte %d is %d, want %d", len(buf), from, round, i, buf[i], b)
		}
	}
	return nil
}

// rage goes on for a time, which rank 0 takes. Its replicas, if it has any, go by the clock of one of them.
func rage(ctx context.Context, comm *mpilib.Comm, p plan, last time.Duration) (t tally, err error) {
	s := storm{comm: comm, plan: p}
	for i := range s.buffers {
		s.buffers[i] = make([]byte, p.max)
	}
	start := time.Now()
	for {
		left := []int64{1}
		if t.Rounds > 0 {
			left[0] = int64(last - time.Since(start))
		}
		if comm.Rank() == 0 {
			if left, err = tallies.Decided(ctx, comm, left); err != nil {
				return t, err
			}
		}
		if err := mpilib.Bcast(ctx, comm, left, 0); err != nil {
			return t, err
		}
		if left[0] <= 0 {
			break
		}
		if err := s.round(ctx, t.Rounds, &t); err != nil {
			return t, err
		}
		if t.Rounds++; t.Rounds == 1 {
			t.FirstBytes, _ = memory()
		}
	}
	t.Seconds = time.Since(start).Seconds()
	t.LastBytes, t.PeakBytes = memory()
	return t, nil
}

// storm is one rank's part.
type storm struct {
	comm     *mpilib.Comm
	plan     plan
	requests [2 * window]*mpilib.Request // in flight: receives, and then sends
	buffers  [2 * window][]byte          // theirs
}

// round sends a message to every rank and receives one from each, both at once: who
// received only as fast as others take what it sends would, now and then, wait for
// itself.
func (s *storm) round(ctx context.Context, round int, t *tally) error {
	received, sent := 0, 0 // begun
	for i := range window {
		s.receive(i, round, &received)
		s.send(window+i, round, &sent, t)
	}
	for {
		i, st, err := mpilib.Waitany(ctx, s.requests[:]...)
		switch {
		case err != nil:
			return err
		case i == mpilib.Undefined:
			return nil // all are complete
		case i >= window:
			s.send(i, round, &sent, t)
			continue
		}
		if want := s.plan.size(s.plan.rng(round, st.Source, s.comm.Rank())); st.Bytes != want {
			return fmt.Errorf("round %d: %d bytes from rank %d, want %d", round, st.Bytes, st.Source, want)
		}
		if err := check(s.buffers[i][:st.Bytes], round, st.Source, s.comm.Rank()); err != nil {
			return err
		}
		s.receive(i, round, &received)
	}
}

// send begins the next send of a round, if there is another, in place of the i-th request.
func (s *storm) send(i, round int, sent *int, t *tally) {
	me, n := s.comm.Rank(), s.comm.Size()
	if s.requests[i] = nil; *sent == n {
		return
	}
	to := (me + *sent) % n
	*sent++
	rng := s.plan.rng(round, me, to)
	b := s.buffers[i][:s.plan.size(rng)]
	fill(b, round, me, to)
	start := [...]func(*mpilib.Comm, []byte, int, int) *mpilib.Request{mpilib.Isend[byte], mpilib.Isend[byte], mpilib.Issend[byte], mpilib.Ibsend[byte]}
	s.requests[i] = start[rng.IntN(len(start))](s.comm, b, to, round%mpilib.MaxTag)
	t.Messages++
	t.Bytes += uint64(len(b))
}

// receive begins the next receive of a round, if there is another, in place of the i-th request: in even rounds from one
// rank after the other, in odd ones from whoever comes.
func (s *storm) receive(i, round int, received *int) {
	me, n := s.comm.Rank(), s.comm.Size()
	if s.requests[i] = nil; *received == n {
		return
	}
	from := (me + n - *received) % n
	*received++
	if round%2 == 1 {
		from = mpilib.AnySource
	}
	s.requests[i] = mpilib.Irecv(s.comm, s.buffers[i], from, round%mpilib.MaxTag)
}
