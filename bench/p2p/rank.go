package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Rank 0 of a job, in C or Go, prints
//
//	ready RANKS VERSION
//
// when it has joined, forwards every line of its input to the other ranks, and all carry it out:
//
//	trips SIZE COUNT     a message goes from rank 0 to rank 1 and back
//	stream SIZE COUNT    windows of messages go from rank 0 to rank 1, and a byte back after each
//	ring SIZE COUNT      a message goes round all ranks
//	barrier 0 COUNT      all ranks wait for each other
//
// It answers "ok NS CPUS": how long one of COUNT takes, and the processor time of all ranks during the
// order, divided by its duration. Ranks in C know more orders:
//
//	gaps SIZE COUNT      a message goes from rank 0 to rank 1 and back, each time after both have computed
//	threads SIZE COUNT   a message goes from the only rank's thread to another of its threads and back
//	init 0 1             nothing; NS is how long the start took until the end of MPI_Init
//	memory 0 1           nothing; in place of NS, the resident memory after MPI_Init in KiB
//
// Before the measurement everything is done a tenth as often, a stream
// once. Except for a stream the time is that of the median of 20 blocks of the COUNT. If messages have
// a first and a last byte, both must arrive. Messages to one rank share a buffer, as in the OSU
// benchmarks.
const (
	orderTrips   = "trips"
	orderStream  = "stream"
	orderRing    = "ring"
	orderBarrier = "barrier"
	orderGaps    = "gaps"
	orderThreads = "threads"
	orderInit    = "init"
	orderMemory  = "memory"
)

const (
	blocks     = 20
	messageTag = 1
	orderTag   = 2
	maxMessage = 64 << 20 // bytes that an order may ask for
)

// Part runs a rank of ours in this process, according to the environment (ISTHMUS_RANK and so on).
func Part(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	w, err := mpilib.Init(ctx)
	if err != nil {
		return fmt.Errorf("bench p2p: %w", err)
	}
	defer func() { err = errors.Join(err, w.Finalize(ctx)) }()
	r := &rank{comm: w.Comm()}
	if r.comm.Rank() == 0 {
		fmt.Fprintln(out, "ready", r.comm.Size(), "-")
	}
	if err := runner.NewOrders(r.comm, orderTag, in).Obey(ctx, out, r.carryOut); err != nil {
		return fmt.Errorf("bench p2p: rank %d of %d: %w", r.comm.Rank(), r.comm.Size(), err)
	}
	return nil
}

// A rank carries out orders.
type rank struct {
	comm    *mpilib.Comm
	out     []byte // the outgoing message
	back    []byte // the incoming one
	started [window]*mpilib.Request
	ended   [window]mpilib.Status
}

func (r *rank) carryOut(ctx context.Context, line string) (answer string, err error) {
	what, size, count, err := parseOrder(line)
	if err != nil {
		return "", err
	}
	if r.comm.Size() < 2 {
		return "", errors.New("there is no other rank")
	}
	r.out, r.back = make([]byte, size), make([]byte, size)
	for i := range size { // the pages are present from now on
		r.out[i], r.back[i] = 'x', 'x'
	}
	var ns float64
	start, busy := time.Now(), processorTime()
	switch what {
	case orderTrips:
		ns, err = repeated(ctx, count, r.trip)
	case orderStream:
		ns, err = r.stream(ctx, count)
	case orderRing:
		ns, err = repeated(ctx, count, r.ring)
	default:
		ns, err = repeated(ctx, count, func(ctx context.Context, _ int) error { return mpilib.Barrier(ctx, r.comm) })
	}
	if err != nil {
		return "", err
	}
	took, used := time.Since(start), []time.Duration{processorTime() - busy}
	all := make([]time.Duration, 1)
	if err := mpilib.Reduce(ctx, r.comm, used, all, mpilib.Sum, 0); err != nil {
		return "", err
	}
	return fmt.Sprintf("ok %.1f %.3f", ns, float64(all[0])/float64(took)), nil
}

// processorTime returns how long all threads of this process have run.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u) // its arguments are valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// parseOrder parses an order.
func parseOrder(line string) (what string, size, count int, err error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return "", 0, 0, errors.New("want a word, a size and a count")
	}
	switch what = words[0]; what {
	case orderTrips, orderStream, orderRing, orderBarrier:
	default:
		return "", 0, 0, errors.New("unknown")
	}
	if size, err = strconv.Atoi(words[1]); err != nil || size < 0 || size > maxMessage {
		return "", 0, 0, fmt.Errorf("size %q: want a number up to %d", words[1], maxMessage)
	}
	if count, err = strconv.Atoi(words[2]); err != nil || count < 1 || count > maxCount {
		return "", 0, 0, fmt.Errorf("count %q: want a number from 1 to %d", words[2], maxCount)
	}
	return what, size, count, nil
}

// repeated does step count times, after a tenth as many to warm up, and returns the ns of one in
// the median block.
func repeated(ctx context.Context, count int, step func(context.Context, int) error) (float64, error) {
	for i := range count/10 + 1 {
		if err := step(ctx, i); err != nil {
			return 0, err
		}
	}
	n, done := min(count, blocks), 0
	var took []float64
	for b := range n {
		from, until := done, count*(b+1)/n
		start := time.Now()
		for ; done < until; done++ {
			if err := step(ctx, done); err != nil {
				return 0, err
			}
		}
		took = append(took, float64(time.Since(start))/float64(until-from))
	}
	return bench.Median(took), nil
}

// trip is one round trip between ranks 0 and 1.
func (r *rank) trip(ctx context.Context, i int) error {
	switch r.comm.Rank() {
	case 0:
		r.mark(i)
		if err := mpilib.Send(ctx, r.comm, r.out, 1, messageTag); err != nil {
			return err
		}
		if _, err := mpilib.Recv(ctx, r.comm, r.back, 1, messageTag); err != nil {
			return err
		}
		return r.check(i)
	case 1:
		if _, err := mpilib.Recv(ctx, r.comm, r.back, 0, messageTag); err != nil {
			return err
		}
		r.mark(i)
		return mpilib.Send(ctx, r.comm, r.out, 0, messageTag)
	}
	return nil
}

// ring sends one message around all ranks.
func (r *rank) ring(ctx context.Context, i int) error {
	n := r.comm.Size()
	next, last := (r.comm.Rank()+1)%n, (r.comm.Rank()+n-1)%n
	if r.comm.Rank() == 0 {
		r.mark(i)
		if err := mpilib.Send(ctx, r.comm, r.out, next, messageTag); err != nil {
			return err
		}
		if _, err := mpilib.Recv(ctx, r.comm, r.back, last, messageTag); err != nil {
			return err
		}
		return r.check(i)
	}
	if _, err := mpilib.Recv(ctx, r.comm, r.back, last, messageTag); err != nil {
		return err
	}
	r.mark(i)
	return mpilib.Send(ctx, r.comm, r.out, next, messageTag)
}

// mark gives the next message its number; check compares it with the received one.
func (r *rank) mark(i int) {
	if n := len(r.out); n > 0 {
		r.out[0], r.out[n-1] = byte(i), byte(i)
	}
}

func (r *rank) check(i int) error {
	if n := len(r.back); n > 0 && (r.back[0] != byte(i) || r.back[n-1] != byte(i)) {
		return fmt.Errorf("number %d brought another message", i)
	}
	return nil
}

// stream returns the ns of a window, once one has warmed up.
func (r *rank) stream(ctx context.Context, count int) (float64, error) {
	if r.comm.Rank() > 1 {
		return 0, nil
	}
	if err := r.windows(ctx, 1); err != nil {
		return 0, err
	}
	start := time.Now()
	err := r.windows(ctx, count)
	return float64(time.Since(start)) / float64(count), err
}

func (r *rank) windows(ctx context.Context, count int) error {
	sends, done := r.comm.Rank() == 0, []byte{1}
	for range count {
		for i := range r.started {
			if sends {
				r.started[i] = mpilib.Isend(r.comm, r.out, 1, messageTag)
			} else {
				r.started[i] = mpilib.Irecv(r.comm, r.back, 0, messageTag)
			}
		}
		if err := mpilib.WaitallInto(ctx, r.ended[:], r.started[:]...); err != nil {
			return err
		}
		var err error
		if sends {
			_, err = mpilib.Recv(ctx, r.comm, done, 1, messageTag)
		} else {
			err = mpilib.Send(ctx, r.comm, done, 0, messageTag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
