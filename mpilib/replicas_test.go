package mpilib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// withReplicas makes TestWorld run replicas of each rank.
func withReplicas(n int, table replica.Table) Option {
	return func(cfg *config) {
		WithReplicas(n)(cfg)
		cfg.replicas.Table = table
	}
}

var tables = []replica.Table{replica.Parallel, replica.Primary}

// killing runs a program on ranks with two replicas, of which one process dies at its n-th step; -1: none.
func killing(t *testing.T, ranks int, table replica.Table, victim, at int, f func(ctx context.Context, c *Comm, step func()) error, opts ...Option) {
	t.Helper()
	TestWorld(t, ranks, func(ctx context.Context, c *Comm) error {
		w, steps := c.World(), 0
		dead := false
		var dying sync.WaitGroup
		err := f(ctx, c, func() {
			if steps++; steps == at && w.Replica()*ranks+c.Rank() == victim {
				dead = true
				dying.Go(w.engine.Close) // at any moment of what follows
			}
		})
		dying.Wait()
		if dead {
			return nil
		}
		return err
	}, append(opts, withReplicas(2, table), WithConnectTimeout(30*time.Second))...) // what is being dialled when it dies stays silent
}

// collectiveProgram is a program of collective and other calls, and what it gets.
func collectiveProgram(ctx context.Context, c *Comm, step func()) error {
	n, me := c.Size(), c.Rank()
	for round := range 8 {
		step()
		sum, all := []int{0}, make([]int, n)
		if err := Allreduce(ctx, c, []int{me + round}, sum, Sum[int]); err != nil {
			return err
		}
		if want := n*(n-1)/2 + n*round; sum[0] != want {
			return fmt.Errorf("round %d: Allreduce: %d, want %d", round, sum[0], want)
		}
		step()
		if err := Alltoall(ctx, c, slices.Repeat([]int{me}, n), all); err != nil {
			return err
		}
		for r := range n {
			if all[r] != r {
				return fmt.Errorf("round %d: Alltoall: %v", round, all)
			}
		}
		step()
		large := make([]byte, 300_000)
		if me == round%n {
			for i := range large {
				large[i] = byte(i + round)
			}
		}
		if err := Bcast(ctx, c, large, round%n); err != nil {
			return err
		}
		for i := range large {
			if large[i] != byte(i+round) {
				return fmt.Errorf("round %d: Bcast: byte %d", round, i)
			}
		}
		part, err := c.Split(ctx, me%2, me)
		if err != nil {
			return err
		}
		if err := Barrier(ctx, part); err != nil {
			return err
		}
		if err := part.Free(); err != nil {
			return err
		}
	}
	return nil
}

// Collective calls and the making of communicators do not notice that a replica dies, wherever the ranks are.
func TestReplicatedCollectives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, table := range tables {
		for i := range either(2, 4) {
			victim, at := random.IntN(8), 4+random.IntN(21)
			if i == 0 {
				victim = -1
			}
			t.Run(fmt.Sprintf("%v/%d dies at %d", table, victim, at), func(t *testing.T) {
				killing(t, 4, table, victim, at, collectiveProgram, WithPlaces([]func(int) (string, string){ownNode, mixedPlace}[i%2]))
			})
		}
	}
}

// farm is a program whose master receives from any source, tests, probes and takes random numbers; it
// returns what may differ between runs.
func farm(ctx context.Context, c *Comm, step func()) (seen []string, err error) {
	w, n := c.World(), c.Size()
	const tasks = 20
	if c.Rank() != 0 {
		for {
			step()
			task := []int{0}
			if _, err := Recv(ctx, c, task, 0, 1); err != nil || task[0] < 0 {
				return seen, err
			}
			if err := Send(ctx, c, []int{task[0] * task[0]}, 0, 2); err != nil {
				return seen, err
			}
		}
	}
	random, err := w.Rand(ctx)
	if err != nil {
		return nil, err
	}
	now, err := w.Now(ctx)
	if err != nil {
		return nil, err
	}
	own, err := w.Decide(ctx, func() []byte { return fmt.Append(nil, w.Replica(), rand.Uint64()) })
	if err != nil {
		return nil, err
	}
	if _, err := w.Decide(ctx, func() []byte { return make([]byte, 1<<16) }); !errors.Is(err, ErrCount) {
		return nil, fmt.Errorf("too much is decided: %v", err)
	}
	seen = append(seen, fmt.Sprint(random.Uint64(), now.UnixNano(), string(own)))
	for r := 1; r < n; r++ {
		if err := Send(ctx, c, []int{r}, r, 1); err != nil {
			return nil, err
		}
	}
	sent, sum := n-1, 0
	for range tasks {
		step()
		got := []int{0}
		in := Irecv(c, got, AnySource, 2)
		tests := 0
		var st Status
		for done := false; !done; tests++ {
			if st, done, err = in.Test(); err != nil {
				return nil, err
			}
			if tests > 1000 {
				if st, err = in.Wait(ctx); err != nil {
					return nil, err
				}
				done = true
			}
		}
		seen = append(seen, fmt.Sprint(st.Source, got[0], tests))
		sum += got[0]
		next := []int{-1}
		if sent < tasks {
			sent++
			next[0] = sent
		}
		if err := Send(ctx, c, next, st.Source, 1); err != nil {
			return nil, err
		}
	}
	if want := tasks * (tasks + 1) * (2*tasks + 1) / 6; sum != want {
		return nil, fmt.Errorf("the sum is %d, want %d", sum, want)
	}
	return seen, nil
}

// What may differ between replicas does not, and a program that has it ends well though a replica dies.
func TestReplicatedFarm(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, table := range tables {
		for i := range either(2, 4) {
			victim, at := random.IntN(8), 2+random.IntN(5)
			if i == 0 {
				victim = -1
			}
			t.Run(fmt.Sprintf("%v/%d dies at %d", table, victim, at), func(t *testing.T) {
				var mu sync.Mutex
				var first []string
				killing(t, 4, table, victim, at, func(ctx context.Context, c *Comm, step func()) error {
					seen, err := farm(ctx, c, step)
					if c.Rank() != 0 || err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = seen
					} else if !slices.Equal(first, seen) {
						return fmt.Errorf("replicas have\n%v\n%v", first, seen)
					}
					return nil
				})
			})
		}
	}
}

// Probes and waits for any of several requests find the same in all replicas.
func TestReplicatedWaits(t *testing.T) {
	for _, table := range tables {
		var mu sync.Mutex
		var first []string
		TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
			if c.Rank() != 0 {
				for tag := range 6 {
					if err := Send(ctx, c, []int{c.Rank()}, 0, tag); err != nil {
						return err
					}
				}
				return nil
			}
			var seen []string
			note := func(what string, args ...any) { seen = append(seen, what+fmt.Sprint(args...)) }
			for range 3 {
				st, err := c.Probe(ctx, AnySource, 0)
				if err != nil {
					return err
				}
				note("probed", st.Source)
				if _, err := Recv(ctx, c, []int{0}, st.Source, 0); err != nil {
					return err
				}
			}
			for found := 0; found < 3; {
				m, ok, err := c.Improbe(AnySource, 1)
				if err != nil {
					return err
				}
				note("improbed", ok, m.Status.Source)
				if ok {
					found++
					if _, err := MRecv(ctx, m, []int{0}); err != nil {
						return err
					}
				}
			}
			for tag := 2; tag < 5; tag++ {
				var in []*Request
				for r := 1; r < 4; r++ {
					in = append(in, Irecv(c, []int{0}, r, tag))
				}
				for left := 3; left > 0; {
					var done []int
					var err error
					switch tag {
					case 2:
						var i int
						i, _, err = Waitany(ctx, in...)
						done = []int{i}
					case 3:
						done, _, err = Waitsome(ctx, in...)
					default:
						var i int
						var ok bool
						if i, _, ok, err = Testany(in...); ok {
							done = []int{i}
						}
					}
					if err != nil {
						return err
					}
					note("done", tag, done)
					for _, i := range done {
						in[i] = nil
						left--
					}
				}
			}
			var in []*Request
			for r := 1; r < 4; r++ {
				in = append(in, Irecv(c, []int{0}, r, 5))
			}
			for {
				_, done, err := Testall(in...)
				if err != nil {
					return err
				}
				note("all", done)
				if done {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = seen
			} else if !slices.Equal(first, seen) {
				return fmt.Errorf("replicas have\n%v\n%v", first, seen)
			}
			return nil
		}, withReplicas(2, table))
	}
}

// A Waitany whose time is over is so in all replicas of a rank, though one has no such bound, and finds nothing in them.
func TestReplicatedWaitExpires(t *testing.T) {
	for _, table := range tables {
		inBubble(t, table.String(), func(t *testing.T) {
			memoryWorld(t, 2, func(ctx context.Context, c *Comm) error {
				if c.Rank() == 1 {
					if _, err := Recv(ctx, c, []int{0}, 0, 1); err != nil {
						return err
					}
					return Send(ctx, c, []int{7}, 0, 0)
				}
				brief, cancel := context.WithTimeout(ctx, time.Duration(1+9*c.World().Replica())*time.Millisecond)
				defer cancel()
				got := []int{0}
				r := Irecv(c, got, 1, 0)
				if _, _, err := Waitany(brief, r); !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("Waitany: %v", err)
				}
				if _, err := c.Probe(brief, AnySource, 0); !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("Probe: %v", err)
				}
				if err := Send(ctx, c, []int{0}, 1, 1); err != nil {
					return err
				}
				if _, err := r.Wait(ctx); err != nil || got[0] != 7 {
					return fmt.Errorf("got %d, %v", got[0], err)
				}
				return nil
			}, nil, withReplicas(2, table))
		})
	}
}

// What replicas would give up at different moments is given up for good: no later call succeeds.
func TestReplicatedCallExpires(t *testing.T) {
	for call, give := range map[string]func(context.Context, *Comm) error{
		"Recv":  func(ctx context.Context, c *Comm) error { return second(Recv(ctx, c, []int{0}, 1, 0)) },
		"Wait":  func(ctx context.Context, c *Comm) error { return second(Irecv(c, []int{0}, 1, 0).Wait(ctx)) },
		"Ssend": func(ctx context.Context, c *Comm) error { return Ssend(ctx, c, []int{0}, 1, 0) },
		"Probe": func(ctx context.Context, c *Comm) error { return second(c.Probe(ctx, 1, 0)) },
		"Bcast": func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, []int{0}, 1) },
		"Ibcast": func(ctx context.Context, c *Comm) error {
			Ibcast(c, []int{0}, 1) // which Bcast waits for, as they are the first
			return Bcast(ctx, c, []int{0}, 1)
		},
		"Idup": func(ctx context.Context, c *Comm) error { return second(c.Idup(context.WithoutCancel(ctx)).Wait(ctx)) },
	} {
		inBubble(t, call, func(t *testing.T) {
			var joined, left sync.WaitGroup
			joined.Add(4)
			left.Add(2)
			c := &collected{T: t}
			memoryWorld(c, 2, func(ctx context.Context, c *Comm) error {
				joined.Done()
				joined.Wait()
				if c.Rank() == 1 {
					left.Wait()
					return nil
				}
				defer left.Done()
				// The failure of the other replica ends ctx.
				gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(10-9*c.World().Replica())*time.Millisecond)
				defer cancel()
				if err := give(gone, c); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrReplicated) {
					t.Errorf("%v", err)
				}
				if err := Send(ctx, c, []int{0}, 1, 5); !errors.Is(err, ErrReplicated) {
					t.Errorf("then Send: %v", err)
				}
				return nil
			}, nil, withReplicas(2, replica.Parallel))
		})
	}
}

// collected is a test whose errors are expected.
type collected struct {
	*testing.T
	mu   sync.Mutex
	text strings.Builder
}

func (c *collected) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(&c.text, format+"\n", args...)
}

// A replica that sends something else is found, and the error says where, also in collective calls.
func TestReplicasDiverge(t *testing.T) {
	send := func(ctx context.Context, c *Comm, data []int) error {
		if c.Rank() == 0 {
			return Send(ctx, c, data, 1, 7)
		}
		_, err := Recv(ctx, c, data, 0, 7)
		return err
	}
	_, _, first, _ := runtime.Caller(0) // the calls are at lines before and after this one
	reduce := func(ctx context.Context, c *Comm, data []int) error {
		return Allreduce(ctx, c, data, []int{0}, Sum[int])
	}
	for line, tt := range map[int]struct {
		f    func(context.Context, *Comm, []int) error
		call string
	}{first - 5: {send, "Send to rank 1, tag 7"}, first + 2: {reduce, `Allreduce to rank [01]`}} {
		c := &collected{T: t}
		TestWorld(c, 2, func(ctx context.Context, c *Comm) error {
			for i := range 300 {
				if err := tt.f(ctx, c, []int{i * (1 + c.World().Replica())}); err != nil {
					return err
				}
			}
			return nil
		}, withReplicas(2, replica.Parallel))
		want := fmt.Sprintf(`rank [01]: replicas \d and \d differ in call \d+( to \d+)?, %s, mpilib/replicas_test\.go:%d: messages of different content \(what is sent may depend`, tt.call, line)
		if got := c.text.String(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("want %q: %s", want, got)
		}
	}
}

// A replica that sends less is found at the end, and the error says what to whom.
func TestReplicaSendsLess(t *testing.T) {
	c := &collected{T: t}
	TestWorld(c, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 1 {
			_, err := Recv(ctx, c, []int{0}, 0, 7)
			if c.World().Replica() == 0 {
				_, err = Recv(ctx, c, []int{0}, 0, 7)
			}
			return err
		}
		for range 2 - c.World().Replica() {
			if err := Send(ctx, c, []int{1}, 1, 7); err != nil {
				return err
			}
		}
		return nil
	}, withReplicas(2, replica.Parallel))
	if got, want := c.text.String(), "rank 0: replicas 1 and 0 differ, in messages to rank 1, tag 7: the other sent more ("; !strings.Contains(got, want) {
		t.Errorf("want %q: %s", want, got)
	}
}

// A probe that waits cannot repeat what one that does not has found, and the reverse.
func TestReplicasProbeDifferently(t *testing.T) {
	c := &collected{T: t}
	TestWorld(c, 2, func(ctx context.Context, c *Comm) error {
		switch {
		case c.Rank() == 1:
			return Send(ctx, c, []int{1}, 0, 0)
		case c.World().Replica() == 0:
			for {
				if _, ok, err := c.Improbe(AnySource, 0); ok || err != nil {
					return err
				}
			}
		}
		_, err := c.Mprobe(ctx, AnySource, 0)
		return err
	}, withReplicas(2, replica.Parallel))
	got := c.text.String()
	if !strings.Contains(got, " at point 1, mpilib/replicas_test.go:") || !strings.Contains(got, ": Probe, and in the other Iprobe (") {
		t.Errorf("a replica called Improbe and the other Mprobe: %s", got)
	}
}

// agreeing is a program that agrees and shrinks, on a communicator of all ranks and between two groups.
func agreeing(ctx context.Context, c *Comm, step func()) error {
	n, me := c.Size(), c.Rank()
	local, err := c.Split(ctx, me%2, 0)
	if err != nil {
		return err
	}
	inter, err := IntercommCreate(ctx, local, 0, c, 1-me%2, 5)
	if err != nil {
		return err
	}
	for round := range 6 {
		for _, on := range []*Comm{c, inter} {
			step()
			v, err := on.Agree(ctx, 1<<10|7&^(1<<me))
			if want := uint64(1<<10 | 7&^(1<<n-1)); err != nil || v != want {
				return fmt.Errorf("round %d: agreed on %x on %s, want %x: %w", round, v, on.Name(), want, err)
			}
			p := on.Iagree(ctx, 5)
			if err := Barrier(ctx, on); err != nil { // meanwhile
				return err
			}
			if v, err := p.Wait(ctx); err != nil || v != 5 {
				return fmt.Errorf("round %d: agreed on %x on %s: %w", round, v, on.Name(), err)
			}
			step()
			s, err := on.Shrink(ctx)
			if err != nil {
				return err
			}
			if s.Size() != on.Size() || s.Rank() != on.Rank() || s.IsInter() != on.IsInter() || !strings.HasPrefix(s.Name(), on.Name()+" shrink ") {
				return fmt.Errorf("round %d: %s, of %d", round, s.Name(), s.Size())
			}
			if err := errors.Join(Barrier(ctx, s), s.Free()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ranks with replicas agree, and shrink to what they were, whichever replica dies.
func TestReplicatedAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, table := range tables {
		for i := range either(2, 6) {
			victim, at := random.IntN(6), 1+random.IntN(24)
			if i == 0 {
				victim = -1
			}
			t.Run(fmt.Sprintf("%v/%d dies at %d", table, victim, at), func(t *testing.T) {
				killing(t, 3, table, victim, at, agreeing)
			})
		}
	}
}

// What ranks with replicas cannot do says so.
func TestReplicatedRefusals(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		var all []error
		for call, err := range map[string]error{
			"Revoke": c.Revoke(),
			"PutTo":  second(PutTo[int](c, 1-c.Rank(), 1, 1)), "GetFrom": second(GetFrom[int](c, 1-c.Rank(), 1, 1)),
			"Accept": second(c.Accept(ctx, "x", 0)), "Connect": second(c.Connect(ctx, "x", 0)),
			"OpenPort": second(c.World().OpenPort(ctx)), "LookupName": second(c.World().LookupName(ctx, "x")),
			"AwaitName": second(c.World().AwaitName(ctx, "x")), "PublishName": c.World().PublishName(ctx, "x", "y"),
		} {
			why, next, _ := strings.Cut(fmt.Sprint(err), "; ")
			if !errors.Is(err, ErrReplicated) || !strings.Contains(why, call) || next == "" {
				all = append(all, fmt.Errorf("%s: %v", call, err))
			}
		}
		r := Irecv(c, []int{0}, 1-c.Rank(), 0)
		if err := r.Cancel(); !errors.Is(err, ErrReplicated) {
			all = append(all, fmt.Errorf("Cancel: %v", err))
		}
		if err := Send(ctx, c, []int{0}, 1-c.Rank(), 0); err != nil {
			all = append(all, err)
		}
		_, err := r.Wait(ctx)
		if c.World().Replicas() != 2 {
			all = append(all, errors.New("Replicas is not 2"))
		}
		return errors.Join(append(all, err)...)
	}, withReplicas(2, replica.Parallel))
}
