package mpilib

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/dynproc"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// These tests check how jobs connect (MPI-4.1, section 11.9) and disconnect (11.10.4).

// board replaces the broker: it has the names that the jobs of one test publish.
type board struct {
	mu    sync.Mutex
	ports map[string]string
	owner map[string]overlay.ProcessName
}

// pinned is a connector that uses the board.
type pinned struct {
	overlay.Connector
	self overlay.ProcessName
	b    *board
}

func (p *pinned) Publish(_ context.Context, name, port string) error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if who, taken := p.b.owner[name]; taken && who != p.self {
		return fmt.Errorf("%w: it is that of %v", overlay.ErrNameTaken, who)
	}
	p.b.ports[name], p.b.owner[name] = port, p.self
	return nil
}

func (p *pinned) Unpublish(_ context.Context, name string) error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.b.owner[name] != p.self {
		return overlay.ErrUnknownName
	}
	delete(p.b.ports, name)
	delete(p.b.owner, name)
	return nil
}

func (p *pinned) LookupName(ctx context.Context, name string, wait bool) (string, error) {
	for {
		p.b.mu.Lock()
		port, ok := p.b.ports[name]
		p.b.mu.Unlock()
		switch {
		case ok:
			return port, nil
		case !wait || ctx.Err() != nil:
			return "", fmt.Errorf("%w: %q", overlay.ErrUnknownName, name)
		}
		time.Sleep(time.Millisecond)
	}
}

// job is one of several that a test starts on one machine.
type job struct {
	n    int
	opts []Option
	f    func(ctx context.Context, c *Comm) error
}

// runJobs runs separate jobs, with one board for all.
func runJobs(t *testing.T, jobs ...job) {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if files, _ := os.ReadDir(dir); len(files) > 0 && !t.Failed() {
			t.Errorf("sockets are left: %v", files)
		}
		os.RemoveAll(dir)
	})
	b := &board{ports: map[string]string{}, owner: map[string]overlay.ProcessName{}}
	connect := func(self overlay.ProcessName) (overlay.Connector, error) {
		d, err := local.Listen(dir, self)
		if err != nil {
			return nil, err
		}
		return &pinned{d, self, b}, nil
	}
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() { testWorld(t, j.n, connect, j.f, j.opts...) })
	}
	all.Wait()
}

// serve returns a job that accepts the given number of connections under a name, and calls a
// function for each.
func serve(name string, times int, do func(ctx context.Context, inter *Comm) error) func(context.Context, *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		port := ""
		if c.Rank() == 0 {
			var err error
			if port, err = c.World().OpenPort(ctx); err != nil {
				return err
			}
			if err := c.World().PublishName(ctx, name, port); err != nil {
				return err
			}
		}
		for range times {
			inter, err := c.Accept(ctx, port, 0)
			if err != nil {
				return err
			}
			if err := do(ctx, inter); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			return c.World().ClosePort(port)
		}
		return nil
	}
}

// connecting returns a job that connects to a name.
func connecting(name string, root int, do func(ctx context.Context, inter *Comm) error) func(context.Context, *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		port := ""
		if c.Rank() == root {
			var err error
			if port, err = c.World().AwaitName(ctx, name); err != nil {
				return err
			}
		}
		inter, err := c.Connect(ctx, port, root)
		if err != nil {
			return err
		}
		return do(ctx, inter)
	}
}

// converse sends messages from every process to every process of the other side, and makes
// collective calls of both sides.
func converse(accepts bool) func(ctx context.Context, inter *Comm) error {
	return func(ctx context.Context, inter *Comm) error {
		if !inter.IsInter() {
			return errors.New("no intercommunicator")
		}
		base, other := 100, 200
		if !accepts {
			base, other = other, base
		}
		var sends []*Request
		for r := range inter.RemoteSize() {
			sends = append(sends, Isend(inter, []int{base + inter.Rank()}, r, 3))
		}
		for r := range inter.RemoteSize() {
			got := make([]int, 1)
			if st, err := Recv(ctx, inter, got, r, 3); err != nil || st.Source != r || got[0] != other+r {
				return fmt.Errorf("from %d: %d, %+v, %v", r, got[0], st, err)
			}
		}
		for _, r := range sends {
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
		all, err := inter.Merge(ctx, !accepts) // 7.6.2: the accepting side comes first
		if err != nil {
			return err
		}
		want := inter.Rank()
		if !accepts {
			want += inter.RemoteSize()
		}
		if all.Rank() != want || all.Size() != inter.Size()+inter.RemoteSize() {
			return fmt.Errorf("rank %d of %d after the merge, want %d", all.Rank(), all.Size(), want)
		}
		sum := []int{all.Rank() + 1}
		if err := Allreduce(ctx, all, sum, sum, Sum[int]); err != nil {
			return err
		}
		if n := all.Size(); sum[0] != n*(n+1)/2 {
			return fmt.Errorf("the sum is %d", sum[0])
		}
		local := []int{1}
		if err := Allreduce(ctx, inter.Local(), local, local, Sum[int]); err != nil || local[0] != inter.Size() {
			return fmt.Errorf("on this side: %d, %v", local[0], err)
		}
		if err := inter.Disconnect(ctx); err != nil {
			return err
		}
		if err := Barrier(ctx, all); err != nil { // the merged communicator works after the other is freed
			return err
		}
		return all.Disconnect(ctx)
	}
}

// 11.9.2, 11.9.3: two separately started jobs, of any sizes and with any root, connect, and
// communicate in the intercommunicator only.
func TestStandard_11_9_2_AcceptAndConnect(t *testing.T) {
	parallel(t)
	for _, sizes := range [][2]int{{1, 1}, {1, 3}, {3, 1}, {2, 3}, {4, 4}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			runJobs(t,
				job{n: sizes[0], f: hearsNothing(serve("x", 1, converse(true)))},
				job{n: sizes[1], f: hearsNothing(connecting("x", sizes[1]-1, converse(false)))})
		})
	}
}

// A peer that is quicker may send in the joint communicator's contexts as soon as it can reach this
// process, before this one has made the communicator.
func TestJointContextsAreAllocatedFromTheStart(t *testing.T) {
	TestWorld(t, 1, func(ctx context.Context, c *Comm) error {
		key, err := jobkey.New("joint")
		if err != nil {
			return err
		}
		made, err := c.joinJoint(ctx, settle.Accept, dynproc.JointJob{Key: key, Others: 1})
		if err != nil {
			return err
		}
		gone, cancel := context.WithCancel(ctx)
		cancel() // nobody is there
		defer made.Finalize(gone)
		for i := range uint32(2) {
			if id := uint32(comm.Context(i, 0, 2)); made.calls.Contexts.Unallocated(id) {
				t.Errorf("a message in context %d would be taken for a mistake", id)
			}
		}
		return nil
	})
}

// hearsNothing runs f and checks that no message arrives in the world's communicator meanwhile.
func hearsNothing(f func(context.Context, *Comm) error) func(context.Context, *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		stray := Irecv(c, make([]int, 1), AnySource, AnyTag)
		if err := f(ctx, c); err != nil {
			return err
		}
		if err := stray.Cancel(); err != nil {
			return err
		}
		if st, err := stray.Wait(ctx); err != nil || !st.Cancelled {
			return fmt.Errorf("in the world's communicator came %+v, %v", st, err)
		}
		return nil
	}
}

// 11.9.2: a port may be used again, and the connections exist concurrently.
func TestStandard_11_9_2_SeveralConnections(t *testing.T) {
	parallel(t)
	const clients = 5
	var served []*Comm
	jobs := []job{{n: 1, f: serve("x", clients, func(ctx context.Context, inter *Comm) error {
		served = append(served, inter)
		if len(served) < clients {
			return nil
		}
		for i, c := range served { // all connections still work
			if err := Send(ctx, c, []int{i}, 0, 0); err != nil {
				return err
			}
		}
		for _, c := range served {
			if err := c.Disconnect(ctx); err != nil {
				return err
			}
		}
		return nil
	})}}
	for range clients {
		jobs = append(jobs, job{n: 2, f: connecting("x", 0, func(ctx context.Context, inter *Comm) error {
			if inter.Rank() == 0 {
				if _, err := Recv(ctx, inter, make([]int, 1), 0, 0); err != nil {
					return err
				}
			}
			return inter.Disconnect(ctx)
		})})
	}
	runJobs(t, jobs...)
}

// Two halves of one job connect through a port that a message contains, without a name. The joint
// worlds end with the last Free, or with Finalize.
func TestHalvesOfOneJob(t *testing.T) {
	parallel(t)
	for _, end := range []string{"free", "finalize", "disconnect"} {
		t.Run(end, func(t *testing.T) {
			TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
				half, err := c.Split(ctx, c.Rank()/2, 0)
				if err != nil {
					return err
				}
				port := ""
				var inter *Comm
				switch {
				case c.Rank() == 0:
					if port, err = c.World().OpenPort(ctx); err != nil {
						return err
					}
					if err = Send(ctx, c, []byte(port), 2, 0); err != nil {
						return err
					}
				case c.Rank() == 2:
					b := make([]byte, 500)
					st, err := Recv(ctx, c, b, 0, 0)
					if err != nil {
						return err
					}
					port = string(b[:st.Count])
				}
				if c.Rank() < 2 {
					inter, err = half.Accept(ctx, port, 0)
				} else {
					inter, err = half.Connect(ctx, port, 0)
				}
				if err != nil {
					return err
				}
				if err := Barrier(ctx, inter); err != nil {
					return err
				}
				if _, err := IntercommCreate(ctx, half, 0, inter, 0, 1); !errors.Is(err, ErrArg) && !errors.Is(err, ErrMismatch) {
					return fmt.Errorf("worlds mix: %v", err)
				}
				switch end {
				case "free":
					return inter.Free()
				case "disconnect":
					if err := inter.Disconnect(ctx); err != nil {
						return err
					}
					if err := inter.Disconnect(ctx); !errors.Is(err, ErrFreed) {
						return fmt.Errorf("again: %v", err)
					}
				}
				return nil
			})
		})
	}
}

// 11.9.2 to 11.9.4: a failing call fails on all ranks and states the reason.
func TestStandard_11_9_3_WhatCannotConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memoryWorld(t, 3, func(ctx context.Context, c *Comm) error {
			w := c.World()
			port := ""
			if c.Rank() == 0 {
				var err error
				if port, err = w.OpenPort(ctx); err != nil {
					return err
				}
				if err := w.ClosePort(port); err != nil {
					return err
				}
				if err := w.ClosePort(port); !errors.Is(err, ErrPort) {
					return fmt.Errorf("closed twice: %v", err)
				}
			}
			for what, err := range map[string]error{
				"a closed port":  second(c.Accept(ctx, port, 0)),
				"nobody's port":  second(c.Connect(ctx, port, 0)),
				"no port at all": second(c.Connect(ctx, "here", 0)),
			} {
				if c.Rank() == 0 && !errors.Is(err, ErrPort) || err == nil {
					return fmt.Errorf("%s: %v", what, err)
				}
				if strings.Contains(err.Error(), strings.TrimPrefix(port, dynproc.Prefix)) && port != "" {
					return fmt.Errorf("%s: the error tells the secret: %v", what, err)
				}
			}
			if err := second(c.Accept(ctx, port, 3)); !errors.Is(err, ErrRank) {
				return fmt.Errorf("no such root: %v", err)
			}
			if err := second(c.Connect(ctx, port, c.Rank())); !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrPort) {
				return fmt.Errorf("several roots: %v", err)
			}
			if err := c.Disconnect(ctx); !errors.Is(err, ErrArg) {
				return fmt.Errorf("the world's: %v", err)
			}
			return nil
		}, nil)
	})
}

// 11.9.4: names need a helper.
func TestNamesNeedAHelper(t *testing.T) {
	parallel(t)
	TestWorld(t, 1, func(ctx context.Context, c *Comm) error {
		w := c.World()
		return expect(w.PublishName(ctx, "x", dynproc.Prefix+w.config.place.Key.String()), overlay.ErrUnreachable, "need a helper")
	})
}

// An Accept ends with its context, and the port can be used again; so does a Connect that is not
// accepted, on all ranks with the root's context. A caller that has given up is not connected
// later.
func TestGivingUpTheOtherJob(t *testing.T) {
	parallel(t)
	waits, gone := make(chan struct{}), make(chan struct{})
	runJobs(t,
		job{n: 1, f: func(ctx context.Context, c *Comm) error {
			w := c.World()
			port, err := w.OpenPort(ctx)
			if err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if _, err := c.Accept(short, port, 0); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("nobody came: %v", err)
			}
			if err := w.PublishName(ctx, "x", port); err != nil {
				return err
			}
			for n := 0; n == 0 && ctx.Err() == nil; {
				if n, err = w.otherJobs.Waiting(port); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			close(waits)
			if _, err := taken(ctx, gone); err != nil {
				return err
			}
			inter, err := c.Accept(ctx, port, 0)
			if err != nil {
				return err
			}
			return inter.Disconnect(ctx)
		}},
		job{n: 2, f: func(ctx context.Context, c *Comm) error {
			port := ""
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			if c.Rank() == 0 {
				var err error
				if port, err = c.World().AwaitName(ctx, "x"); err != nil {
					return err
				}
				go func() {
					taken(ctx, waits)
					cancel() // this rank's context only
				}()
			}
			if _, err := c.Connect(short, port, 0); !errors.Is(err, context.Canceled) || errors.Is(err, ErrPort) || !regexp.MustCompile("waiting for the other job to accept|reaching the other job").MatchString(err.Error()) {
				return fmt.Errorf("nobody accepted: %v", err)
			}
			if c.Rank() == 0 {
				close(gone)
			}
			inter, err := c.Connect(ctx, port, 0)
			if err != nil {
				return err
			}
			return inter.Disconnect(ctx)
		}})
}

// 11.9.4: a name is known from its publication until it is withdrawn, and belongs to one process.
func TestStandard_11_9_4_Names(t *testing.T) {
	parallel(t)
	runJobs(t, job{n: 2, f: func(ctx context.Context, c *Comm) error {
		w := c.World()
		port, err := w.OpenPort(ctx)
		if err != nil {
			return err
		}
		if _, err := w.LookupName(ctx, "x"); !errors.Is(err, ErrName) {
			return fmt.Errorf("an unknown name: %v", err)
		}
		if err := w.UnpublishName(ctx, "x"); !errors.Is(err, ErrService) {
			return fmt.Errorf("nobody's name: %v", err)
		}
		if err := w.PublishName(ctx, "x", "anything"); !errors.Is(err, ErrPort) {
			return fmt.Errorf("no port: %v", err)
		}
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := w.PublishName(ctx, "x", port); err != nil {
				return err
			}
		}
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := w.PublishName(ctx, "x", port); !errors.Is(err, ErrService) {
				return fmt.Errorf("another's name: %v", err)
			}
		}
		if got, err := w.LookupName(ctx, "x"); err != nil || c.Rank() == 0 && got != port {
			return fmt.Errorf("%q, %v", got, err)
		}
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return w.UnpublishName(ctx, "x")
		}
		return nil
	}})
}

// The failure of a process after connecting is an error of the calls that need it, and Disconnect
// does not wait for it.
func TestTheOtherJobDies(t *testing.T) {
	parallel(t)
	dir := testkit.ShortDir(t)
	connect := func(self overlay.ProcessName) (overlay.Connector, error) { return local.Listen(dir, self) }
	handed := make(chan string, 1)
	dead := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		testWorld(t, 2, connect, func(ctx context.Context, c *Comm) error {
			port := ""
			if c.Rank() == 0 {
				var err error
				if port, err = c.World().OpenPort(ctx); err != nil {
					return err
				}
				handed <- port
			}
			inter, err := c.Accept(ctx, port, 0)
			if err != nil {
				return err
			}
			if _, err := Recv(ctx, inter, make([]int, 1), 0, 0); err != nil { // so that there is a link
				return err
			}
			if _, err := taken(ctx, dead); err != nil {
				return err
			}
			if _, err := Recv(ctx, inter, make([]int, 1), 0, 0); !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrFinalized) {
				return fmt.Errorf("received from who is gone: %v", err)
			}
			return inter.Disconnect(ctx)
		})
	})
	both.Go(func() {
		key, err := jobkey.New("mortal")
		if err != nil {
			t.Error(err)
			return
		}
		conn, err := connect(overlay.ProcessName{Job: key.ID()})
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		w, err := Init(ctx, WithConnector(conn, key, 0, 1), func(cfg *config) { cfg.reach = connect })
		if err != nil {
			t.Error(err)
			return
		}
		defer close(dead)
		port, err := taken(ctx, handed)
		if err != nil {
			t.Error(err)
			return
		}
		inter, err := w.Comm().Connect(ctx, port, 0)
		for r := 0; r < 2 && err == nil; r++ {
			err = Ssend(ctx, inter, []int{1}, r, 0)
		}
		if err != nil {
			t.Error(err)
			return
		}
		gone, kill := context.WithCancel(ctx)
		kill()
		w.Finalize(gone) // ends without waiting
	})
	both.Wait()
}

// 11.10.4: Disconnect returns when the messages sent before have arrived. From then on the jobs are
// independent: the accepting job ends while the other continues.
func TestStandard_11_10_4_Disconnect(t *testing.T) {
	parallel(t)
	ended := make(chan struct{})
	dir := testkit.ShortDir(t)
	connect := func(self overlay.ProcessName) (overlay.Connector, error) { return local.Listen(dir, self) }
	handed := make(chan string, 1)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(ended)
		testWorld(t, 1, connect, func(ctx context.Context, c *Comm) error {
			port, err := c.World().OpenPort(ctx)
			if err != nil {
				return err
			}
			handed <- port
			inter, err := c.Accept(ctx, port, 0)
			if err != nil {
				return err
			}
			var sends []*Request
			for i := range 100 {
				sends = append(sends, Isend(inter, []int{i}, i%2, 0))
			}
			if err := inter.Disconnect(ctx); err != nil {
				return err
			}
			if err := Send(ctx, inter, []int{1}, 0, 0); !errors.Is(err, ErrFreed) {
				return fmt.Errorf("after Disconnect: %v", err)
			}
			for i, r := range sends {
				if _, err := r.Wait(ctx); err != nil {
					return fmt.Errorf("send %d: %w", i, err)
				}
			}
			return nil
		})
	})
	both.Go(func() {
		testWorld(t, 2, connect, func(ctx context.Context, c *Comm) error {
			port := ""
			if c.Rank() == 0 {
				var err error
				if port, err = taken(ctx, handed); err != nil {
					return err
				}
			}
			inter, err := c.Connect(ctx, port, 0)
			if err != nil {
				return err
			}
			for i := c.Rank(); i < 100; i += 2 {
				got := []int{-1}
				if _, err := Recv(ctx, inter, got, 0, 0); err != nil || got[0] != i {
					return fmt.Errorf("message %d: %d, %v", i, got[0], err)
				}
			}
			if err := inter.Disconnect(ctx); err != nil {
				return err
			}
			if _, err := taken(ctx, ended); err != nil {
				return err
			}
			return Barrier(ctx, c)
		})
	})
	both.Wait()
}

// A process that cannot join the joint job makes the call fail on all ranks of both sides, all of
// which report it, and leaves nothing behind.
func TestOneCannotJoin(t *testing.T) {
	parallel(t)
	dir := testkit.ShortDir(t)
	var ports sync.Map // joint jobs of the two roots only
	broken := errors.New("no way out")
	connect := func(refuses bool) func(overlay.ProcessName) (overlay.Connector, error) {
		return func(self overlay.ProcessName) (overlay.Connector, error) {
			if _, port := ports.Load(self.Job); refuses && !port && self.Rank == 3 { // it is rank 1 of the connecting side
				return nil, broken
			}
			return local.Listen(dir, self)
		}
	}
	handed := make(chan string, 1)
	var both sync.WaitGroup
	both.Go(func() {
		testWorld(t, 2, connect(false), func(ctx context.Context, c *Comm) error {
			port := ""
			if c.Rank() == 0 {
				var err error
				if port, err = c.World().OpenPort(ctx); err != nil {
					return err
				}
				key, err := dynproc.ParsePort(port)
				if err != nil {
					return err
				}
				ports.Store(key.ID(), true)
				handed <- port
			}
			if inter, err := c.Accept(ctx, port, 0); !errors.Is(err, ErrMismatch) || inter != nil || !strings.Contains(err.Error(), "the other job says: ") {
				return fmt.Errorf("Accept: %v", err)
			}
			return Barrier(ctx, c)
		})
	})
	both.Go(func() {
		testWorld(t, 2, connect(true), func(ctx context.Context, c *Comm) error {
			port := ""
			if c.Rank() == 0 {
				var err error
				if port, err = taken(ctx, handed); err != nil {
					return err
				}
			}
			want := ErrMismatch
			if c.Rank() == 1 {
				want = broken
			}
			if inter, err := c.Connect(ctx, port, 0); !errors.Is(err, want) || inter != nil || c.Rank() == 0 && !strings.Contains(err.Error(), "rank 1 could not join") {
				return fmt.Errorf("Connect: %v", err)
			}
			return Barrier(ctx, c)
		})
	})
	both.Wait()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("sockets are left: %v, %v", files, err)
	}
}

// A caller at a port that violates the protocol, or leaves at once, is not accepted, and callers
// beyond the port's limit are refused.
func TestCallersThatAreNone(t *testing.T) {
	parallel(t)
	runJobs(t,
		job{n: 1, f: func(ctx context.Context, c *Comm) error {
			w := c.World()
			port, err := w.OpenPort(ctx)
			if err != nil {
				return err
			}
			key, err := dynproc.ParsePort(port)
			if err != nil {
				return err
			}
			for _, words := range []string{"", "ISjoin01", strings.Repeat("nonsense", 20), "ISjoin01" + strings.Repeat("\x00", 36)} {
				l, link, err := w.otherJobs.Dial(ctx, key)
				if err != nil {
					return err
				}
				if _, err := link.Conn.Write([]byte(words)); err != nil {
					return err
				}
				l.CloseLink(link)
				defer l.Close()
			}
			if err := w.PublishName(ctx, "x", port); err != nil {
				return err
			}
			inter, err := c.Accept(ctx, port, 0)
			if err != nil {
				return err
			}
			return converse(true)(ctx, inter)
		}},
		job{n: 2, f: connecting("x", 0, converse(false))})
}

// A world of one without a connector is unreachable, and the error says so.
func TestAloneWithoutAHelper(t *testing.T) {
	w, err := Init(t.Context(), func(cfg *config) { cfg.place = &join.Place{Size: 1} })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Finalize(t.Context())
	for what, err := range map[string]error{
		"OpenPort":      second(w.OpenPort(t.Context())),
		"LookupName":    second(w.LookupName(t.Context(), "x")),
		"AwaitName":     second(w.AwaitName(t.Context(), "x")),
		"UnpublishName": w.UnpublishName(t.Context(), "x"),
	} {
		if !errors.Is(err, ErrEnv) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "this process has no helper") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
