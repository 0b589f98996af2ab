package mpilib

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// This file is for ranks with replicas. Their replicas run the same program, and must see the same: whatever may
// differ between them is a point, at which one replica decides and the others get what it decided.

// ErrReplicated is the error of calls that ranks with replicas cannot make.
var ErrReplicated = mpi.ErrReplicated

// The kinds of points. A call that waits and one that does not differ in what they may decide: with one kind for both, a
// Mprobe could repeat that an Improbe of another replica's found nothing.
const (
	pointTest = 1 + iota
	pointWaitany
	pointTestany
	pointWaitsome
	pointTestsome
	pointTestall
	pointProbe
	pointIprobe
	pointNow
	pointRand
	pointPending
	pointDecide
)

// Replicas returns how many processes each rank has, 1 without replication, and Replica which of them this is, from 0. All of
// them run the program: what depends on Replica must not be sent.
func (w *World) Replicas() int { return max(1, w.config.place.Replicas) }

// Replica is described at Replicas.
func (w *World) Replica() int { return w.config.place.Replica }

func (w *World) replicated() bool { return w.config.place.Replicas > 1 }

// replication returns the engine's settings for replicas. A process that has a connector of its own shares its memory with others, in a
// test: it does not end by itself.
func (cfg *config) replication() engine.Replication {
	p := cfg.place
	var expelled func()
	if cfg.connector == nil {
		expelled = endExpelled
	}
	return engine.Replication{
		Expelled: expelled,
		Replica:  p.Replica, Replicas: p.Replicas, Table: p.Table, SendDeterministic: p.SendDeterministic,
		InOrder: func(context uint32) bool { return context%comm.ContextsPerComm == comm.PointToPoint },
	}
}

// endExpelled ends the process as a signal would, which the launcher takes for the loss of this replica. An exit status
// would count as the program's own and end the job.
func endExpelled() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
		select {} // until the signal arrives
	}
	os.Exit(128 + 9)
}

// readReplicas completes the config of a rank with replicas.
func (cfg *config) readReplicas() error {
	if r := cfg.replicas; r.Replicas > 1 && cfg.connector != nil {
		p := *cfg.place
		p.Replica, p.Replicas, p.Table, p.SendDeterministic = r.Replica, r.Replicas, r.Table, r.SendDeterministic
		cfg.place = &p
	}
	if cfg.place.Replicas <= 1 {
		return nil
	}
	if cfg.debug != 0 || cfg.trace != "" {
		return fmt.Errorf("mpilib: Init: %w: the debug mode and traces observe what differs between replicas (unset %s)", ErrReplicated, EnvDebug)
	}
	cfg.place.Unshared = true
	return nil
}

// unreplicated returns the error of a call that ranks with replicas cannot make, and why; nil without replicas.
func (w *World) unreplicated(why string) error {
	if !w.replicated() {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrReplicated, why)
}

// WithReplicas makes TestWorld run n processes of each rank, so that a test finds what differs between them. Elsewhere the
// environment says how many there are.
func WithReplicas(n int) Option { return func(cfg *config) { cfg.replicas.Replicas = n } }

// The reasons why calls are refused.
const (
	reasonFailures   = "replicas learn of the loss of a rank at different times"
	reasonJobs       = "another job would connect with each replica"
	reasonPartitions = "which partitions have arrived differs between replicas"
	reasonCancel     = "whether it is in time differs between replicas"
)

// Decide returns what choose returns, at most 65535 bytes; in ranks with replicas what it returns in one of them, so that all have the same:
// a measured time, or what a file says that others may find changed. All replicas of a rank call it, in the same order among such calls.
func (w *World) Decide(ctx context.Context, choose func() []byte) ([]byte, error) {
	text, err := w.engine.Point(ctx, pointDecide, func() string {
		if b := choose(); len(b) <= maxDecided {
			return "0" + string(b)
		}
		return "1"
	})
	if err == nil && text == "1" {
		err = fmt.Errorf("%w: more than %d bytes", ErrCount, maxDecided)
	}
	if err != nil {
		return nil, fmt.Errorf("mpilib: Decide: %w", err)
	}
	return []byte(text[1:]), nil
}

// maxDecided leaves room for what Decide adds.
const maxDecided = replica.MaxData - 1

// Now returns the time; in ranks with replicas the same one in all of them, which time.Now is not.
func (w *World) Now(ctx context.Context) (time.Time, error) {
	text, err := w.engine.Point(ctx, pointNow, func() string { return strconv.FormatInt(time.Now().UnixNano(), 10) })
	if err != nil {
		return time.Time{}, fmt.Errorf("mpilib: Now: %w", err)
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, ns), err
}

// Rand returns a source of random numbers, seeded anew by each call; in ranks with replicas it yields the same numbers in
// all of them. Other ranks get other numbers. Not safe for concurrent use.
func (w *World) Rand(ctx context.Context) (*rand.Rand, error) {
	text, err := w.engine.Point(ctx, pointRand, func() string {
		var seed [32]byte
		cryptorand.Read(seed[:])
		return string(seed[:])
	})
	if err != nil {
		return nil, fmt.Errorf("mpilib: Rand: %w", err)
	}
	return rand.New(rand.NewChaCha8([32]byte([]byte(text)))), nil
}

// replicatedWorld returns the world of requests whose rank has replicas, or nil.
func replicatedWorld(requests ...*Request) *World {
	for _, r := range requests {
		if r != nil {
			if w := r.transfer().comm.world; w.replicated() {
				return w
			}
			return nil
		}
	}
	return nil
}

// failure begins what a replica decides that has found an error.
const failure = "error: "

// testReplicated is Test: one replica looks, and where it finds the request complete the others wait for it.
func (w *World) testReplicated(r *Request) (st Status, done bool, err error) {
	found, err := w.indices(context.Background(), pointTest, func() ([]int, error) { return complete(r), nil })
	if err != nil || len(found) == 0 {
		return Status{}, false, err
	}
	st, err = r.Wait(context.Background())
	return st, true, err
}

// complete returns the indices of the requests that are complete, or held up.
func complete(requests ...*Request) (all []int) {
	for i, r := range requests {
		if r != nil && (r.unstarted || r.core.Done() || r.heldUp() != nil) {
			all = append(all, i)
		}
	}
	return all
}

// indices returns which requests one replica has found, or in all of them the error of that one.
func (w *World) indices(ctx context.Context, kind uint8, find func() ([]int, error)) (all []int, err error) {
	var failed error
	text, err := w.engine.Point(ctx, kind, func() string {
		var found []int
		if found, failed = find(); failed != nil {
			return failure + failed.Error()
		}
		var b strings.Builder
		for _, i := range found {
			fmt.Fprintf(&b, "%d ", i)
		}
		return b.String()
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("mpilib: replicas: %w", err)
	}
	if why, ok := strings.CutPrefix(text, failure); ok {
		return nil, fmt.Errorf("mpilib: replicas: another one decides, and found: %s", why)
	}
	for _, field := range strings.Fields(text) {
		i, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// waitanyReplicated is Waitany.
func (w *World) waitanyReplicated(ctx context.Context, requests []*Request) (int, Status, error) {
	found, err := w.indices(ctx, pointWaitany, func() ([]int, error) {
		i, err := waitAny(ctx, requests)
		if i == Undefined {
			return nil, err
		}
		return []int{i}, err
	})
	if err != nil || len(found) == 0 {
		return Undefined, emptyStatus, err
	}
	st, err := requests[found[0]].Wait(ctx)
	return found[0], st, err
}

// someReplicated is Waitsome and Testsome.
func (w *World) someReplicated(ctx context.Context, waits bool, requests []*Request) ([]int, []Status, error) {
	kind := uint8(pointTestsome)
	if waits {
		kind = pointWaitsome
	}
	found, err := w.indices(ctx, kind, func() ([]int, error) {
		if waits {
			if i, err := waitAny(ctx, requests); err != nil || i == Undefined {
				return nil, err
			}
		}
		return complete(requests...), nil
	})
	if err != nil {
		return nil, nil, err
	}
	var statuses []Status
	var errs []error
	for _, i := range found {
		st, err := requests[i].Wait(ctx)
		statuses, errs = append(statuses, st), append(errs, err)
	}
	return found, statuses, errors.Join(errs...)
}

// testanyReplicated is Testany.
func (w *World) testanyReplicated(requests []*Request) (int, Status, bool, error) {
	found, err := w.indices(context.Background(), pointTestany, func() ([]int, error) {
		all := complete(requests...)
		return all[:min(1, len(all))], nil
	})
	if err != nil || len(found) == 0 {
		return Undefined, emptyStatus, false, err
	}
	st, err := requests[found[0]].Wait(context.Background())
	return found[0], st, true, err
}

// testallReplicated is Testall.
func (w *World) testallReplicated(requests []*Request) ([]Status, bool, error) {
	found, err := w.indices(context.Background(), pointTestall, func() ([]int, error) {
		for _, r := range requests {
			if r != nil && len(complete(r)) == 0 {
				return nil, nil
			}
		}
		return []int{0}, nil
	})
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	statuses, err := Waitall(context.Background(), requests...)
	return statuses, true, err
}

// foundReplicated returns the source, a world rank, and the tag of the message that one replica has found.
func foundReplicated(ctx context.Context, c *Comm, src, tag int, waits bool) (source, sent int, ok bool, err error) {
	e := c.world.engine
	kind := uint8(pointIprobe)
	if waits {
		kind = pointProbe
	}
	found, err := c.world.indices(ctx, kind, func() ([]int, error) {
		var m engine.Matched
		ok, err := true, error(nil)
		if waits {
			m, err = e.Probe(ctx, c.core.Senders(), c.core.Context, src, tag, false)
		} else {
			m, ok, err = e.Iprobe(c.core.Senders(), c.core.Context, src, tag, false)
		}
		if err != nil || !ok {
			return nil, err
		}
		return []int{m.Result().Source, m.Result().Tag}, nil
	})
	if err != nil || len(found) != 2 {
		return 0, 0, false, err
	}
	return found[0], found[1], true, nil
}

// probeReplicated is a probe from src, a world rank or AnySource, that waits or does not.
func probeReplicated(ctx context.Context, c *Comm, src, tag int, take, waits bool) (m engine.Matched, ok bool, err error) {
	if !waits || src == AnySource {
		if src, tag, ok, err = foundReplicated(ctx, c, src, tag, waits); err != nil || !ok {
			return m, false, err
		}
	}
	m, err = c.world.engine.Probe(ctx, c.core.Senders(), c.core.Context, src, tag, take)
	return m, err == nil, err
}
