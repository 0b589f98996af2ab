package overlap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// times are the durations of each turn, in ms.
type times struct {
	Alone     []float64 `json:"alone"`    // the computation
	Send      []float64 `json:"send"`     // Isend and Wait
	Both      []float64 `json:"both"`     // Isend, the computation, Wait
	SendCPU   []float64 `json:"send_cpu"` // processor time of the process in Send
	Technique string    `json:"technique"`
	Cipher    string    `json:"cipher"`
}

const (
	messageTag = 1
	warmUp     = 3                      // sends before anything is measured
	minWork    = 200 * time.Millisecond // minimum duration of the computation, or twice that of a send
)

// Part runs a rank of the job: 0 sends and computes, 1 receives. Rank 0 writes its measurements to
// w.
func Part(ctx context.Context, w io.Writer, size, repeat int) (err error) {
	world, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Finalize(ctx)) }()
	t, err := measure(ctx, world.Comm(), size, repeat)
	if err != nil || world.Comm().Rank() != 0 {
		return err
	}
	for _, l := range world.Links() {
		t.Technique, t.Cipher = l.Technique, l.Cipher
	}
	return json.NewEncoder(w).Encode(t)
}

func measure(ctx context.Context, comm *mpilib.Comm, size, repeat int) (t times, err error) {
	if comm.Size() != 2 {
		return t, fmt.Errorf("%d ranks: want 2", comm.Size())
	}
	if comm.Rank() == 1 {
		return t, receive(ctx, comm, size, warmUp+2*repeat)
	}
	s := sender{ctx: ctx, comm: comm, buf: make([]byte, size)}
	var sends []float64
	for range warmUp {
		sends = append(sends, s.time(true, 0))
	}
	work := s.calibrate(max(float64(minWork.Milliseconds()), 2*bench.Median(sends)))
	for range repeat {
		before := processor()
		t.Send = append(t.Send, s.time(true, 0))
		t.SendCPU = append(t.SendCPU, processor()-before)
		t.Alone = append(t.Alone, s.time(false, work))
		t.Both = append(t.Both, s.time(true, work))
	}
	return t, s.err
}

// receive receives count messages, posting each receive when the rank signals that it is ready, and
// checks the number at each message's beginning and end.
func receive(ctx context.Context, comm *mpilib.Comm, size, count int) error {
	buf := make([]byte, size)
	for i := range count {
		r := mpilib.Irecv(comm, buf, 0, messageTag)
		if err := mpilib.Send(ctx, comm, []byte{}, 0, messageTag); err != nil {
			return err
		}
		if st, err := r.Wait(ctx); err != nil {
			return err
		} else if st.Bytes != size || buf[0] != byte(i) || buf[size-1] != byte(i) {
			return fmt.Errorf("message %d of %d bytes: got %d, from %d to %d", i, size, st.Bytes, buf[0], buf[size-1])
		}
	}
	return nil
}

// sender is rank 0.
type sender struct {
	ctx  context.Context
	comm *mpilib.Comm
	buf  []byte
	sent int
	err  error // the first
}

// time returns how many ms it takes to begin a send, if send is set, compute, and complete the
// send.
func (s *sender) time(send bool, work int) float64 {
	var r *mpilib.Request
	if send {
		_, err := mpilib.Recv(s.ctx, s.comm, []byte{}, 1, messageTag) // it is expected there
		s.note(err)
		s.buf[0], s.buf[len(s.buf)-1] = byte(s.sent), byte(s.sent)
		s.sent++
	}
	start := time.Now()
	if send {
		r = mpilib.Isend(s.comm, s.buf, 1, messageTag)
	}
	compute(work)
	if send {
		_, err := r.Wait(s.ctx)
		s.note(err)
	}
	return float64(time.Since(start).Microseconds()) / 1000
}

func (s *sender) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

// calibrate returns the amount of work that takes ms. The shortest of a few tries counts: other
// load makes the others longer.
func (s *sender) calibrate(ms float64) int {
	for work := 1; ; work *= 2 {
		took := s.time(false, work)
		for range 4 {
			took = min(took, s.time(false, work))
		}
		if took > ms/20 {
			return max(1, int(float64(work)*ms/took))
		}
	}
}

// processor returns how many ms of processor time the process has used.
func processor() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // cannot happen: the arguments are valid
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// field is the data of the computation; it fits a processor's L1 cache, so that the computation
// competes only for its processor.
var field [2048]float64

// compute does so many rounds of work.
func compute(rounds int) {
	for range rounds {
		for i := range field {
			field[i] = field[i]*0.999 + float64(i)
		}
	}
}
