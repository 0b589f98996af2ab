package storm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// plan is what is sent, the same on every rank.
type plan struct {
	seed uint64
	max  int // bytes
}

const (
	headerLen = 16 // of a message: round, from, to, size
	window    = 8  // messages to others that a rank has under way, and from others
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

// rage goes on for a time, which rank 0 takes.
func rage(ctx context.Context, comm *mpilib.Comm, p plan, last time.Duration) (t tally, err error) {
	s := storm{comm: comm, plan: p}
	for i := range s.in {
		s.in[i].buf, s.out[i].buf = make([]byte, p.max), make([]byte, p.max)
	}
	start := time.Now()
	for goOn := []bool{true}; ; t.Rounds++ {
		goOn[0] = t.Rounds == 0 || time.Since(start) < last
		if err := mpilib.Bcast(ctx, comm, goOn, 0); err != nil {
			return t, err
		}
		if !goOn[0] {
			break
		}
		if err := s.round(ctx, t.Rounds, &t); err != nil {
			return t, err
		}
		if t.Rounds == 0 {
			t.FirstBytes, _ = memory()
		}
	}
	t.Seconds = time.Since(start).Seconds()
	t.LastBytes, t.PeakBytes = memory()
	return t, nil
}

// storm is one rank's part.
type storm struct {
	comm    *mpilib.Comm
	plan    plan
	in, out [window]slot
}

// slot is a message under way.
type slot struct {
	buf []byte
	r   *mpilib.Request
}

// round sends a message to every rank and receives one from each, both at once: who
// received only as fast as others take what it sends would, now and then, wait for
// itself.
func (s *storm) round(ctx context.Context, round int, t *tally) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	received := make(chan error, 1)
	go func() {
		err := s.receive(ctx, round)
		if err != nil {
			cancel(err) // or the sends might wait for ever
		}
		received <- err
	}()
	err := s.send(ctx, round, t)
	if err != nil {
		cancel(err)
	}
	if failed := <-received; failed != nil {
		return failed
	}
	return err
}

func (s *storm) send(ctx context.Context, round int, t *tally) error {
	me, n := s.comm.Rank(), s.comm.Size()
	for step := range n + window {
		out := &s.out[step%window]
		if out.r != nil {
			if _, err := out.r.Wait(ctx); err != nil {
				return err
			}
			out.r = nil
		}
		if step >= n {
			continue
		}
		to := (me + step) % n
		rng := s.plan.rng(round, me, to)
		b := out.buf[:s.plan.size(rng)]
		fill(b, round, me, to)
		start := [...]func(*mpilib.Comm, []byte, int, int) *mpilib.Request{mpilib.Isend[byte], mpilib.Isend[byte], mpilib.Issend[byte], mpilib.Ibsend[byte]}
		out.r = start[rng.IntN(len(start))](s.comm, b, to, round%mpilib.MaxTag)
		t.Messages++
		t.Bytes += uint64(len(b))
	}
	return nil
}

// receive receives in even rounds from one rank after the other, in odd ones from
// whoever comes.
func (s *storm) receive(ctx context.Context, round int) error {
	me, n := s.comm.Rank(), s.comm.Size()
	for step := range n + window {
		in := &s.in[step%window]
		if in.r != nil {
			st, err := in.r.Wait(ctx)
			if err != nil {
				return err
			}
			in.r = nil
			if want := s.plan.size(s.plan.rng(round, st.Source, me)); st.Bytes != want {
				return fmt.Errorf("round %d: %d bytes from rank %d, want %d", round, st.Bytes, st.Source, want)
			}
			if err := check(in.buf[:st.Bytes], round, st.Source, me); err != nil {
				return err
			}
		}
		from := (me + n - step%n) % n
		if round%2 == 1 {
			from = mpilib.AnySource
		}
		if step < n {
			in.r = mpilib.Irecv(s.comm, in.buf, from, round%mpilib.MaxTag)
		}
	}
	return nil
}
