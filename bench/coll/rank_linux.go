package coll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	orderTag = 1 + iota
	startTag
	doneTag
)

const (
	tries = 12 // attempts to announce the beginning in time
)

// Part runs this process as one of our ranks, as the environment says.
func Part(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	w, err := mpilib.Init(ctx)
	if err != nil {
		return fmt.Errorf("bench coll: %w", err)
	}
	defer func() { err = errors.Join(err, w.Finalize(ctx)) }()
	r := &rank{world: w, comm: w.Comm()}
	if err := r.settle(ctx); err != nil {
		return fmt.Errorf("bench coll: before the first order: %w", err)
	}
	if r.comm.Rank() == 0 {
		fmt.Fprintln(out, "ready -"+strings.Repeat(" -", r.comm.Size()))
	}
	if err := runner.NewOrders(r.comm, orderTag, in).Obey(ctx, out, r.carryOut); err != nil {
		return fmt.Errorf("bench coll: rank %d of %d: %w", r.comm.Rank(), r.comm.Size(), err)
	}
	return nil
}

// A rank carries out orders.
type rank struct {
	world *mpilib.World
	comm  *mpilib.Comm
}

// Calls before a job counts as settled: links have then carried large messages, and the ranks
// have agreed on the first measurements of their paths.
const (
	settleLarge = 3
	settleBytes = 64 * kib // for each other rank
	settleCalls = 70
)

// settle makes calls that are not measured. All ranks join by them.
func (r *rank) settle(ctx context.Context) error {
	n := r.comm.Size()
	send, recv := make([]byte, n*settleBytes), make([]byte, n*settleBytes)
	for range settleLarge {
		if err := mpilib.Alltoall(ctx, r.comm, send, recv); err != nil {
			return err
		}
	}
	for range settleCalls - settleLarge {
		if err := mpilib.Barrier(ctx, r.comm); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) carryOut(ctx context.Context, line string) (answer string, err error) {
	o, err := parseOrder(line)
	switch {
	case err != nil:
	case o.what == orderCount:
		answer, err = r.count(ctx, o)
	case o.what == orderCalls:
		answer, err = "ok", r.calls(ctx, o)
	default:
		answer, err = r.time(ctx, o)
	}
	var refused *refusal
	if errors.As(err, &refused) {
		return "no " + strings.ReplaceAll(refused.Error(), "\n", " "), nil
	}
	return answer, err
}

// A refusal is a call that fails alike on all ranks before anything is sent.
type refusal struct{ error }

// now returns the machine's monotonic clock in ns. Like the ranks in C it makes no system call,
// which could give up the processor in the middle of a measurement.
func now() float64 { return clock.at + float64(time.Since(clock.read)) }

// clock is the value of that clock when the process began.
var clock = func() (c struct {
	at   float64
	read time.Time
}) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the arguments are valid
	}
	c.at, c.read = float64(t.Nano()), time.Now()
	return c
}()

// sleepUntil sleeps as the ranks in C do.
func sleepUntil(at float64) {
	t := unix.NsecToTimespec(int64(at))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil) != nil {
	}
}

func (r *rank) time(ctx context.Context, o order) (string, error) {
	args, err := newInputs(r.comm, o)
	if err != nil {
		return "", err
	}
	var took, late []float64
	if o.ahead > 0 {
		took, late, err = r.byClock(ctx, o, args.call)
	} else {
		took, late, err = r.byBarrier(ctx, o, args.call)
	}
	if err != nil || r.comm.Rank() != 0 {
		return "", err
	}
	slices.Sort(late)
	var b strings.Builder
	fmt.Fprintf(&b, "ok %.0f", late[len(late)/2])
	for _, ns := range took {
		fmt.Fprintf(&b, " %.0f", ns)
	}
	return b.String(), nil
}

// byClock makes the ranks begin at a time that rank 0 announces.
func (r *rank) byClock(ctx context.Context, o order, call func(context.Context) error) (took, late []float64, err error) {
	if r.comm.Rank() != 0 {
		for {
			at := make([]float64, 1)
			if _, err := mpilib.Recv(ctx, r.comm, at, 0, startTag); err != nil || at[0] < 0 {
				return nil, nil, err
			}
			if _, _, _, err := r.repetition(ctx, at[0], call); err != nil && !errors.As(err, new(*refusal)) {
				return nil, nil, err
			}
		}
	}
	defer func() { err = errors.Join(err, r.begin(ctx, -1)) }()
	for i, missed := -o.warm, 0; i < o.count; {
		at := now() + o.ahead
		if err := r.begin(ctx, at); err != nil {
			return nil, nil, err
		}
		t, l, m, err := r.repetition(ctx, at, call)
		if err != nil {
			return nil, nil, err
		}
		if m > 0 {
			if missed++; missed == tries {
				return nil, nil, errors.New("the time to begin always reaches the other ranks too late")
			}
			o.ahead = 2*o.ahead + 1e6
			continue
		}
		if missed = 0; i >= 0 {
			took, late = append(took, t), append(late, l)
		}
		i++
	}
	return took, late, nil
}

// begin announces the time to begin to the other ranks.
func (r *rank) begin(ctx context.Context, at float64) error {
	for to := 1; to < r.comm.Size(); to++ {
		if err := mpilib.Send(ctx, r.comm, []float64{at}, to, startTag); err != nil {
			return err
		}
	}
	return nil
}

// repetition makes one call on all ranks, at the given time. The results are valid at rank 0
// only: the duration, by how much the last rank began late, and by how much the announcement
// reached it late.
func (r *rank) repetition(ctx context.Context, at float64, call func(context.Context) error) (took, late, missed float64, err error) {
	var said [3]float64
	said[2] = now() - at
	sleepUntil(at)
	said[1] = now() - at
	err = call(ctx)
	said[0] = now() - at
	if err != nil && !errors.As(err, new(*refusal)) {
		return 0, 0, 0, err
	}
	if r.comm.Rank() != 0 {
		return 0, 0, 0, errors.Join(err, mpilib.Send(ctx, r.comm, said[:], 0, doneTag))
	}
	worst := said
	for from := 1; from < r.comm.Size(); from++ {
		if _, err := mpilib.Recv(ctx, r.comm, said[:], from, doneTag); err != nil {
			return 0, 0, 0, err
		}
		for i := range worst {
			worst[i] = max(worst[i], said[i])
		}
	}
	return worst[0], worst[1], worst[2], err
}

// byBarrier has each repetition begin when the first rank leaves a barrier, and end with the slowest.
func (r *rank) byBarrier(ctx context.Context, o order, call func(context.Context) error) (took, late []float64, err error) {
	times := make([]float64, 2*o.count) // when each began, then when each had ended
	began, ended := times[:o.count], times[o.count:]
	var refused error
	for i := -o.warm; i < o.count; i++ {
		if err := mpilib.Barrier(ctx, r.comm); err != nil {
			return nil, nil, err
		}
		began[max(i, 0)] = now()
		if err := call(ctx); errors.As(err, new(*refusal)) {
			refused = err
		} else if err != nil {
			return nil, nil, err
		}
		ended[max(i, 0)] = now()
	}
	if r.comm.Rank() != 0 {
		return nil, nil, errors.Join(refused, mpilib.Send(ctx, r.comm, times, 0, doneTag))
	}
	theirs := make([]float64, len(times))
	for from := 1; from < r.comm.Size(); from++ {
		if _, err := mpilib.Recv(ctx, r.comm, theirs, from, doneTag); err != nil {
			return nil, nil, err
		}
		for i := range began {
			began[i], ended[i] = min(began[i], theirs[i]), max(ended[i], theirs[o.count+i])
		}
	}
	took, late = make([]float64, o.count), make([]float64, o.count)
	for i := range took {
		took[i] = ended[i] - began[i]
	}
	return took, late, refused
}

// sent returns the messages and bytes that this rank has sent to each other rank.
func (r *rank) sent() []uint64 {
	all := make([]uint64, 2*r.comm.Size())
	for _, l := range r.world.Links() {
		all[2*l.Peer], all[2*l.Peer+1] = l.MessagesSent, l.BytesSent
	}
	return all
}

// counted is the number of counted calls. Some calls also agree on measurements of paths, which
// must not count; no two consecutive calls do.
const counted = 2

func (r *rank) count(ctx context.Context, o order) (string, error) {
	args, err := newInputs(r.comm, o)
	if err != nil {
		return "", err
	}
	if err := args.call(ctx); err != nil {
		return "", err
	}
	if err := args.check(); err != nil {
		return "", err
	}
	var least [][]uint64
	for i := range counted {
		before := r.sent()
		if err := args.call(ctx); err != nil {
			return "", err
		}
		sent := r.sent()
		for k := range sent {
			sent[k] -= before[k]
		}
		all, err := r.collect(ctx, sent)
		if err != nil {
			return "", err
		}
		if i == 0 || total(all) < total(least) {
			least = all
		}
	}
	if r.comm.Rank() != 0 {
		return "", nil
	}
	var b strings.Builder
	b.WriteString("ok")
	for i, sent := range least {
		for to := range r.comm.Size() {
			if messages, bytes := sent[2*to], sent[2*to+1]; messages > 0 {
				fmt.Fprintf(&b, " %d:%d:%d:%d", i, to, messages, bytes)
			}
		}
	}
	return b.String(), nil
}

// calls makes calls, each before a barrier.
func (r *rank) calls(ctx context.Context, o order) error {
	call := func(context.Context) error { return nil }
	if o.collective != noCall {
		args, err := newInputs(r.comm, o)
		if err != nil {
			return err
		}
		call = args.call
	}
	for range o.count {
		if err := call(ctx); err != nil {
			return err
		}
		if err := mpilib.Barrier(ctx, r.comm); err != nil {
			return err
		}
	}
	return nil
}

// total returns the number of messages that all ranks sent.
func total(all [][]uint64) (n uint64) {
	for _, sent := range all {
		for i := 0; i < len(sent); i += 2 {
			n += sent[i]
		}
	}
	return n
}

// collect returns, at rank 0, the traffic of every rank.
func (r *rank) collect(ctx context.Context, sent []uint64) (all [][]uint64, err error) {
	if r.comm.Rank() != 0 {
		return nil, mpilib.Send(ctx, r.comm, sent, 0, doneTag)
	}
	all = append(all, sent)
	for from := 1; from < r.comm.Size(); from++ {
		theirs := make([]uint64, len(sent))
		if _, err := mpilib.Recv(ctx, r.comm, theirs, from, doneTag); err != nil {
			return nil, err
		}
		all = append(all, theirs)
	}
	return all, nil
}
