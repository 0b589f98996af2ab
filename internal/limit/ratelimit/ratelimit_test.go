package ratelimit

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// serve runs a Limiter until the test ends or stop is called.
func serve(t *testing.T, rules quota.Rules, state string) (lim *Limiter, stop func()) {
	t.Helper()
	lim, err := New(rules, state, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { lim.Serve(ctx) })
	stop = func() { cancel(); served.Wait() }
	t.Cleanup(stop)
	return lim, stop
}

func admit(t *testing.T, lim *Limiter, o quota.Owner, moved func() uint64) *Throttle {
	t.Helper()
	if moved == nil {
		moved = func() uint64 { return 0 }
	}
	l, err := lim.Admit(o, moved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

var alice = quota.Owner{User: "alice", Project: "p", Job: "j"}

// Twenty links take turns, and together get exactly the rate.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 80e6 // 10 MB/s
		lim, _ := serve(t, quota.Rules{Rate: rate}, "")
		var moved [20]atomic.Int64
		var all sync.WaitGroup
		var links []*Throttle
		start := time.Now()
		for i := range moved {
			l := admit(t, lim, alice, nil)
			links = append(links, l)
			all.Go(func() {
				for {
					n := l.Take(i%2, 1<<20)
					if n == 0 {
						return
					}
					moved[i].Add(int64(n))
				}
			})
		}
		sum := func() (n int64) {
			for i := range moved {
				n += moved[i].Load()
			}
			return n
		}
		testkit.Until(t, "two seconds' worth has passed", func() bool { return sum() >= 20e6 })
		for _, l := range links {
			l.Stop()
		}
		all.Wait()
		if most := rate/8*time.Since(start).Seconds() + 600e3; float64(sum()) > most {
			t.Errorf("%d bytes passed, at most %.0f may have", sum(), most)
		}
		var values []float64
		for i := range moved {
			values = append(values, float64(moved[i].Load()))
		}
		if j := bench.Jain(values); j < 0.95 {
			t.Errorf("Jain index %.3f, want 0.95", j)
		}
		if st := lim.Status(); st.Waits == 0 || st.Links != 20 || st.Users["alice"].Links != 20 {
			t.Errorf("status %+v", st)
		}
	})
}

// Stop ends a pending Take; requests behind it proceed.
func TestStopWhileWaiting(t *testing.T) {
	lim, _ := serve(t, quota.Rules{Job: quota.Limits{Rate: 8}}, "") // a byte a second
	l := admit(t, lim, alice, nil)
	for l.Paced() && lim.Status().Waiting == 0 {
		done := make(chan int, 1)
		go func() { done <- l.Take(0, 1<<20) }()
		testkit.Until(t, "it waits or passes", func() bool { return lim.Status().Waiting > 0 || len(done) > 0 })
		if lim.Status().Waiting > 0 {
			l.Stop()
			if n := testkit.Receive(t, "the end of Take", done); n != 0 {
				t.Errorf("stopped, and %d bytes may pass", n)
			}
			break
		}
		<-done
	}
	if n := l.Take(0, 1); n != 0 {
		t.Errorf("after Stop %d bytes may pass", n)
	}
	if st := lim.Status(); st.Waiting != 0 {
		t.Errorf("%d still wait", st.Waiting)
	}
	l.Close()
	if st := lim.Status(); st.Links != 0 {
		t.Errorf("%d links after Close", st.Links)
	}
}

// New rules reach a waiting link.
func TestNewRulesFreeWhoWaits(t *testing.T) {
	lim, _ := serve(t, quota.Rules{Job: quota.Limits{Rate: 8}}, "")
	l := admit(t, lim, alice, nil)
	passed := make(chan bool, 1)
	go func() { passed <- l.Pay(0, 1<<20) }()
	testkit.Until(t, "it waits", func() bool { return lim.Status().Waiting > 0 })
	lim.SetRules(quota.Rules{})
	if !testkit.Receive(t, "the end of Pay", passed) {
		t.Error("the payment failed")
	}
	if l.Paced() {
		t.Error("still paced")
	}
}

// The month's counts survive a restart, and so do their effects.
func TestMonthSurvives(t *testing.T) {
	state := filepath.Join(t.TempDir(), "quota.json")
	rules := quota.Rules{User: quota.Limits{Month: 1000}}
	lim, stop := serve(t, rules, state)
	var moved atomic.Uint64
	l := admit(t, lim, alice, moved.Load)
	moved.Store(1000)
	l.Close()
	stop()

	text, err := os.ReadFile(state)
	if err != nil || !strings.Contains(string(text), `"alice":1000`) {
		t.Fatalf("stored: %s, %v", text, err)
	}
	lim, stop = serve(t, rules, state)
	if _, err := lim.Admit(alice, moved.Load); err == nil || !strings.Contains(err.Error(), "per_user.bytes_month") {
		t.Errorf("after a restart: %v", err)
	}
	stop()
	if left, _ := filepath.Glob(state + ".new-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	if err := os.WriteFile(state, text[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(rules, state, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), state) {
		t.Errorf("a broken file: %v", err)
	}
}

// Two processes that share the file, a daemon and its successor, count together.
func TestTwoShareTheFile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "quota.json")
	rules := quota.Rules{User: quota.Limits{Month: 100}}
	old, stopOld := serve(t, rules, state)
	next, stopNext := serve(t, rules, state)
	for _, lim := range []*Limiter{old, next} {
		var moved atomic.Uint64
		l := admit(t, lim, alice, moved.Load)
		moved.Store(60)
		l.Close()
	}
	stopOld()
	next.store()
	if _, err := next.Admit(alice, func() uint64 { return 0 }); err == nil {
		t.Error("60 bytes here and 60 there of 100, and a link is admitted")
	}
	stopNext()
	if text, err := os.ReadFile(state); err != nil || !strings.Contains(string(text), `"alice":120`) {
		t.Errorf("stored: %s, %v", text, err)
	}
}

// Counts that could not be stored are stored the next time.
func TestStoreFails(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "there", "quota.json")
	lim, stop := serve(t, quota.Rules{User: quota.Limits{Month: 100}}, state)
	var moved atomic.Uint64
	l := admit(t, lim, alice, moved.Load)
	moved.Store(60)
	l.Close()
	lim.store() // the folder does not exist
	if err := os.Mkdir(filepath.Join(dir, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	stop()
	if text, err := os.ReadFile(state); err != nil || !strings.Contains(string(text), `"alice":60`) {
		t.Errorf("stored: %s, %v", text, err)
	}
}

// A live link is slowed once its month is used up.
func TestLiveLinkIsSlowed(t *testing.T) {
	lim, _ := serve(t, quota.Rules{Project: quota.Limits{Month: 1000}, Trickle: 8}, "")
	var moved atomic.Uint64
	l := admit(t, lim, alice, moved.Load)
	if l.Paced() {
		t.Fatal("paced from the start")
	}
	moved.Store(5000)
	lim.countAll()
	if rate, key := l.Limit(); !l.Paced() || rate != 8 || key != "quota.per_project.rate" {
		t.Errorf("paced %v, held to %v by %s", l.Paced(), rate, key)
	}
}

func TestConfig(t *testing.T) {
	c := Config{PerUser: Limits{Month: 5}}
	if err := c.Check("quota"); err == nil || !strings.Contains(err.Error(), "quota.state") {
		t.Errorf("bytes_month without a file: %v", err)
	}
	c.State = "x"
	if err := c.Check("quota"); err != nil {
		t.Error(err)
	}
	if r := c.Rules(); r.User.Month != 5 {
		t.Errorf("%+v", r)
	}
}
