//go:build system

package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Processes may start before any daemon does, and daemons in any order: here in reverse order of
// dependency. Each waits for the next.
func TestDaemonsComeInAnyOrder(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{})
	daemons := slices.Clone(w.Daemons())
	slices.Reverse(daemons) // helpers, frontals, proxy, broker
	for _, d := range daemons {
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	joined := make(chan error, 1)
	key := labtest.NewKey(t, "early")
	var early *probe.Rank
	go func() {
		var err error
		early, err = probe.Join(w.Ctx, w.Grid, "closed/n1", key, 0)
		joined <- err
	}()
	var dialled chan error
	var late *labtest.Member
	for _, d := range daemons {
		if d.Name == "broker" {
			select {
			case err := <-dialled:
				t.Fatalf("connected before the broker was there: %v", err)
			default:
			}
		}
		if err := d.Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		if d.Name == "helper closed/n1" { // the last of the helpers to start
			if err := <-joined; err != nil {
				t.Fatal(err)
			}
			t.Cleanup(early.Leave)
			late = w.Join(key, "shut/n1", 1, 2)
			dialled = make(chan error, 1)
			go func() {
				l, _, err := early.Dial(w.Ctx, 1)
				if err == nil {
					l.Conn.Close()
				}
				dialled <- err
			}()
		}
	}
	if err := <-dialled; err != nil {
		t.Error(err)
	}
	w.NextLink(late)
}

// dialError is the error of a process that dials within a budget.
func (w *world) dialError(r *probe.Rank, peer uint32, budget time.Duration) error {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, budget)
	defer cancel()
	l, _, err := r.Dial(ctx, peer)
	if err == nil {
		l.Conn.Close()
		w.T.Fatal("the dial succeeded")
	}
	return err
}

// wantDialError makes a dial that fails and compares the error. On a busy machine the caller may
// give up just before the daemons report the reason: then it retries with a longer budget.
func (w *world) wantDialError(r *probe.Rank, peer uint32, class error, job overlay.JobID, text string) {
	w.T.Helper()
	var err error
	for _, budget := range []time.Duration{time.Second, 4 * time.Second, 15 * time.Second} {
		if err = w.dialError(r, peer, budget); labtest.IsError(err, class, job, text) {
			if twice := saidTwice(err.Error()); twice != "" {
				w.T.Errorf("%v says twice %q", err, twice)
			}
			return
		}
	}
	labtest.WantError(w.T, err, class, job, text)
}

// The errors that a user sees when a daemon is absent: which one, where and since when.
func TestAbsentDaemons(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{Settings: map[string]map[string]any{"frontal": {"patience": "200ms"}}})
	key := labtest.NewKey(t, "absent")
	asker, target := w.Join(key, "closed/n1", 0, 8), w.Join(key, "shut/n1", 1, 8)
	job := key.ID()
	restart := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := w.Daemon(name).Start(w.Ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Settled(w.Ctx); err != nil {
			t.Fatal(err)
		}
	}

	w.wantDialError(asker.Rank, 7, overlay.ErrUnknownProcess, job,
		"local.Dial: rank 7 of job <job>: process is not registered: waited <duration> for it to start; it has not registered with any helper")

	w.Daemon("proxy p1").Kill()
	w.Until("the broker to miss the proxy", func() bool { return len(w.Figure("broker", "proxies").([]any)) == 0 })
	w.wantDialError(asker.Rank, 1, overlay.ErrNoRelay, job,
		"local.Dial: rank 1 of job <job>: at shut/n1: relay: no proxy is available: no proxy has a session with the broker; start one, or look at its log")
	restart("proxy p1")

	w.Daemon("broker").Kill()
	w.wantDialError(asker.Rank, 1, overlay.ErrUnreachable, job,
		"local.Dial: rank 1 of job <job>: frontal closed has no session with the broker at 203.0.113.2:443 since <time>: "+
			"refused: nothing listens there, or a firewall resets")
	w.wantDialError(asker.Rank, 6, overlay.ErrUnreachable, job,
		"local.Dial: rank 6 of job <job>: frontal closed has no session with the broker at 203.0.113.2:443 since <time>: "+
			"refused: nothing listens there, or a firewall resets")
	restart("broker")

	w.Daemon("frontal closed").Kill()
	w.wantDialError(asker.Rank, 1, overlay.ErrUnreachable, job,
		"local.Dial: rank 1 of job <job>: unreachable: helper closed/n1 has had no session with its frontal at 10.1.0.1:7440 since <time>: "+
			"refused: nothing listens there, or a firewall resets")
	restart("frontal closed")

	w.Daemon("frontal shut").Kill()
	w.Until("the broker to miss the frontal", func() bool {
		for _, s := range w.Figure("broker", "sites").([]any) {
			if s := s.(map[string]any); !s["connected"].(bool) {
				return true
			}
		}
		return false
	})
	if err := w.dialError(asker.Rank, 1, 10*time.Second); !errors.Is(err, overlay.ErrUnknownSite) || !strings.Contains(err.Error(), "the frontal of shut has no session with broker broker since ") {
		t.Errorf("without the target's frontal: %v", err)
	}
	restart("frontal shut")

	socket := w.Socket("closed/n1")
	w.Daemon("helper closed/n1").Kill()
	w.wantDialError(asker.Rank, 1, context.DeadlineExceeded, job,
		"local.Dial: rank 1 of job <job>: helper "+socket+" is not reachable: connect: connection refused; is isthmus-helper running? (context deadline exceeded)")
	restart("helper closed/n1")

	l, _, err := asker.Dial(w.Ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	l.Conn.Close()
	w.NextLink(target)
}

// mpi is the world of mpilib for one rank of a job of two, which reaches the other through a helper of the
// grid.
func (w *world) mpi(node string, key string, rank int) *mpilib.World {
	w.T.Helper()
	for name, value := range map[string]string{
		mpilib.EnvRank: string(rune('0' + rank)), mpilib.EnvSize: "2", mpilib.EnvHelper: w.Socket(node), mpilib.EnvJobKey: key,
	} {
		w.T.Setenv(name, value)
	}
	m, err := mpilib.Init(w.Ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	return m
}

// A proxy dies in the middle of a job: the job is unaffected, its link continues through another
// proxy.
func TestProxyDiesInTheMiddle(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{Proxies: []string{"public/p1", "public/p2"}})
	key := labtest.NewKey(t, "loss").String()
	worlds := []*mpilib.World{w.mpi("closed/n1", key, 0), w.mpi("shut/n1", key, 1)}
	exchange := func(tag int) {
		t.Helper()
		received := make(chan error, 2)
		for i, m := range worlds {
			go func() {
				var got [1]int
				_, err := mpilib.Recv(w.Ctx, m.Comm(), got[:], 1-i, tag)
				if err == nil && got[0] != 1-i {
					err = fmt.Errorf("got %d", got)
				}
				received <- err
			}()
			if err := mpilib.Send(w.Ctx, m.Comm(), []int{i}, 1-i, tag); err != nil {
				t.Fatal(err)
			}
		}
		for range worlds {
			if err := <-received; err != nil {
				t.Errorf("tag %d: %v", tag, err)
			}
		}
	}
	exchange(1)
	dead := worlds[0].Links()[0].Proxy
	w.Daemon("proxy " + dead).Kill()
	exchange(2)
	for i, m := range worlds {
		if p := m.Links()[0]; p.Technique != overlay.Relay.String() || p.Proxy == dead || p.Proxy == "" {
			t.Errorf("rank %d: after %s died the link goes by %+v", i, dead, p)
		}
	}
	var finalized sync.WaitGroup
	for _, m := range worlds {
		finalized.Go(func() {
			if err := m.Finalize(w.Ctx); err != nil {
				t.Error(err)
			}
		})
	}
	finalized.Wait()
}

// A path silently drops everything: every technique is tried within its bound, and the error names
// what timed out.
func TestSilence(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, grid.Config{})
	key := labtest.NewKey(t, "silence")
	asker, target := w.Join(key, "closed/n1", 0, 3), w.Join(key, "open/n1", 1, 3)
	deaf, err := probe.Join(w.Ctx, w.Grid, "open/n1", key, 2) // registered, and accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(deaf.Leave)
	job := key.ID()

	w.wantDialError(asker.Rank, 2, context.DeadlineExceeded, job, silentPeer)

	if err := w.Lab.Cut("closed", "open"); err != nil {
		t.Fatal(err)
	}
	err = w.dialError(asker.Rank, 1, 10*time.Second)
	if !errors.Is(err, overlay.ErrTimeout) || !regexp.MustCompile(`^local.Dial: rank 1 of job `+string(job)+
		`: at open/n1: direct: .*dial 10\.2\.0\.11:\d+: timed out: no answer within [0-9.]+s$`).MatchString(err.Error()) {
		t.Errorf("cut off: %v", err)
	}
	if err := w.Lab.Restore("closed", "open"); err != nil {
		t.Fatal(err)
	}
	l, _, err := asker.Dial(w.Ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	l.Conn.Close()
	w.NextLink(target)
}

// silentPeer returns the error of a dialler whose peer accepts the connection but sends nothing.
const silentPeer = "link to rank 2 of job <job> (direct): context deadline exceeded: waiting for its hello: read tcp <address>-><address>: i/o timeout"
