package mpilib

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/mpilib/internal/milestone"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/points"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// This file is for ranks with replicas. Their replicas run the same program, and must see the same: whatever may
// differ between them is a point, at which one replica decides and the others get what it decided.

// ErrReplicated is the error of calls that ranks with replicas cannot make.
var ErrReplicated = mpi.ErrReplicated

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
		expelled = join.EndExpelled
	}
	return engine.Replication{
		Expelled: expelled,
		Replica:  p.Replica, Replicas: p.Replicas, Newcomers: p.Newcomers, Number: p.Number, Table: p.Table, SendDeterministic: p.SendDeterministic,
		Kinds: points.Names, Site: func() (string, string) { return debug.CurrentCallsite().Parts() },
		InOrder: func(context uint32) bool { return context%comm.ContextsPerComm == comm.PointToPoint },
	}
}

// readReplicas completes the config of a rank with replicas.
func (cfg *config) readReplicas() error {
	if r := cfg.replicas; r.Replicas > 1 && cfg.connector != nil {
		p := *cfg.place
		p.Replica, p.Replicas, p.Table, p.SendDeterministic = r.Replica, r.Replicas, r.Table, r.SendDeterministic
		p.Newcomers, p.Number, p.Places = r.Newcomers, r.Number, r.Places
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

// WithReplica makes a process that joins by WithConnector the given one of so many replicas of its rank, from 0: process
// replica*size + rank of the job, as the connector numbers it. primary chooses that table; see EnvReplicaTable.
func WithReplica(which, replicas int, primary bool) Option {
	table := map[bool]replica.Table{true: replica.Primary}[primary] // or Parallel
	return func(cfg *config) { cfg.replicas = join.Place{Replica: which, Replicas: replicas, Table: table} }
}

// ReplicaTraffic counts what a process has sent as a replica, since Init.
type ReplicaTraffic = replica.Traffic

// ReplicaTraffic returns the counters of this process, which are zero if ranks have no replicas.
func (w *World) ReplicaTraffic() ReplicaTraffic { return engine.TrafficOf(w.engine) }

// The reasons why calls are refused, and what to do.
const (
	reasonFailures   = "replicas learn of the loss of a rank at different times; give the ranks more replicas, or none to handle losses yourself"
	reasonJobs       = "another job would connect with each replica; run the job that connects without replicas"
	reasonPartitions = "which partitions have arrived differs between replicas; Wait for all of them"
	reasonCancel     = "whether it is in time differs between replicas; let the transfer complete"
)

// Decide returns what choose returns, at most 65535 bytes; in ranks with replicas what it returns in one of them, so that all have the same:
// a measured time, or what a file says that others may find changed. All replicas of a rank call it, in the same order among such calls.
func (w *World) Decide(ctx context.Context, choose func() []byte) ([]byte, error) {
	text, err := w.engine.Point(ctx, points.Decide, func() string {
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

// Milestone is called at places from which the program could go on with the bytes that save returns, by all processes in the
// same order, first right after Init. Mostly it returns at once. When a process has come in place of a lost replica (`isthmus run --replicas
// 2 --replace 1`), all wait at one of them: save is called in another replica of that rank, and load in the new process, which goes on from
// there. Neither may call the library, and save prints nothing. What the program printed before must have been written: flush buffers before the call. The program must then have no communicators but the first ones, no requests, and no
// messages that it has not received (ErrReplicated). Without replicas Milestone does nothing.
func (w *World) Milestone(ctx context.Context, save func() ([]byte, error), load func([]byte) error) error {
	if !w.replicated() {
		return nil
	}
	p := milestone.Program{World: &w.calls, Predefined: []*calls.Comm{&w.comm.core, &w.comms.self.core}, Save: save, Load: load, Marks: w.config.place.Marks}
	if err := p.Come(ctx); err != nil {
		return fmt.Errorf("mpilib: Milestone: %w", err)
	}
	return nil
}

// Now returns the time; in ranks with replicas the same one in all of them, which time.Now is not.
func (w *World) Now(ctx context.Context) (time.Time, error) {
	text, err := w.engine.Point(ctx, points.Now, func() string { return strconv.FormatInt(time.Now().UnixNano(), 10) })
	if err != nil {
		return time.Time{}, fmt.Errorf("mpilib: Now: %w", err)
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, ns), err
}

// Rand returns a source of random numbers, seeded anew by each call; in ranks with replicas it yields the same numbers in
// all of them. Other ranks get other numbers. Not safe for concurrent use.
func (w *World) Rand(ctx context.Context) (*rand.Rand, error) {
	text, err := w.engine.Point(ctx, points.Rand, func() string {
		var seed [32]byte
		cryptorand.Read(seed[:])
		return string(seed[:])
	})
	if err != nil {
		return nil, fmt.Errorf("mpilib: Rand: %w", err)
	}
	return rand.New(rand.NewChaCha8([32]byte([]byte(text)))), nil
}

// replicatedWorld returns the world of requests whose rank has replicas, or nil. A process has the same replicas in each of its
// worlds that has any, so one of them decides for all.
func replicatedWorld(requests ...*Request) *World {
	for _, r := range requests {
		if !r.isInactive() && r.comm.world.replicated() {
			return r.comm.world
		}
	}
	return nil
}

// testReplicated is Test: one replica looks, and where it finds the request complete the others wait for it.
func (w *World) testReplicated(r *Request) (st Status, done bool, err error) {
	found, err := points.Indices(w.engine, points.Test, func() ([]int, error) { return complete(r), nil })
	if err != nil || len(found) == 0 {
		return Status{}, false, err
	}
	st, err = r.Wait(context.Background())
	return st, true, err
}

// complete returns the indices of the requests that are complete, or held up.
func complete(requests ...*Request) (all []int) {
	for i, r := range requests {
		if !r.isInactive() && (r.isDone() || r.blockedBy() != nil) {
			all = append(all, i)
		}
	}
	return all
}

// waitanyReplicated is Waitany.
func (w *World) waitanyReplicated(ctx context.Context, requests []*Request) (int, Status, error) {
	found, err := points.Indices(w.engine, points.Waitany, func() ([]int, error) {
		i, err := waitAny(ctx, requests)
		if i == Undefined {
			return nil, err
		}
		return []int{i}, err
	})
	if err != nil || len(found) == 0 {
		return Undefined, emptyStatus, err
	}
	st, err := requests[found[0]].Wait(context.Background())
	return found[0], st, err
}

// someReplicated is Waitsome and Testsome.
func (w *World) someReplicated(ctx context.Context, waits bool, requests []*Request) ([]int, []Status, error) {
	kind := points.Testsome
	if waits {
		kind = points.Waitsome
	}
	found, err := points.Indices(w.engine, kind, func() ([]int, error) {
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
		st, err := requests[i].Wait(context.Background())
		statuses, errs = append(statuses, st), append(errs, err)
	}
	return found, statuses, errors.Join(errs...)
}

// testanyReplicated is Testany.
func (w *World) testanyReplicated(requests []*Request) (int, Status, bool, error) {
	found, err := points.Indices(w.engine, points.Testany, func() ([]int, error) {
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
	found, err := points.Indices(w.engine, points.Testall, func() ([]int, error) {
		for _, r := range requests {
			if !r.isInactive() && len(complete(r)) == 0 {
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
