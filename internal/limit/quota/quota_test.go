package quota

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/overlay"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// crowd is links that always have more to send, in virtual time.
type crowd struct {
	*Quota
	t     *testing.T
	now   time.Time
	flows []*Flow
	moved map[*Flow]int
	most  map[*Flow]int // bytes to ask for at once; unlimited if absent
}

func newCrowd(t *testing.T, r Rules) *crowd {
	return &crowd{Quota: New(r, nil, noon), t: t, now: noon, moved: map[*Flow]int{}, most: map[*Flow]int{}}
}

// add admits links, and makes one direction of each busy.
func (c *crowd) add(o Owner, links int) (flows []*Flow) {
	c.t.Helper()
	for range links {
		l, err := c.Admit(o, c.now)
		if err != nil {
			c.t.Fatal(err)
		}
		flows = append(flows, l.Flow(0))
	}
	c.flows = append(c.flows, flows...)
	return flows
}

// ask makes f ask until it must wait.
func (c *crowd) ask(f *Flow) {
	have := c.most[f]
	if have == 0 {
		have = 1 << 30
	}
	for {
		n, _ := c.Ask(f, have, c.now)
		if n == 0 {
			return
		}
		c.moved[f] += n
	}
}

// run lets all move for d.
func (c *crowd) run(d time.Duration) {
	c.t.Helper()
	for _, f := range c.flows {
		if f.level == stages {
			c.ask(f)
		}
	}
	for end := c.now.Add(d); ; {
		ready, next := c.Advance(nil, c.now)
		for _, f := range ready {
			c.moved[f] += f.Want()
			c.ask(f)
		}
		if len(ready) > 0 {
			continue
		}
		if next.IsZero() {
			c.t.Fatal("flows wait, and nobody says for how long")
		}
		if next.After(end) {
			c.now = end
			return
		}
		if !next.After(c.now) {
			c.t.Fatalf("at %v nothing passes, and the next look is to be at %v", c.now, next)
		}
		c.now = next
	}
}

// settle uses up the burst, which goes to the first comers.
func (c *crowd) settle() {
	c.run(500 * time.Millisecond)
	clear(c.moved)
}

func (c *crowd) sum(flows []*Flow) (n int) {
	for _, f := range flows {
		n += c.moved[f]
	}
	return n
}

func (c *crowd) jain(flows []*Flow) float64 {
	var values []float64
	for _, f := range flows {
		values = append(values, float64(c.moved[f]))
	}
	return bench.Jain(values)
}

func near(t *testing.T, what string, got int, want, tolerance float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > tolerance*want {
		t.Errorf("%s moved %d bytes, want %.0f within %.0f %%", what, got, want, 100*tolerance)
	}
}

// Equal demands get equal shares, and the rate is used completely.
func TestFairAmongLinks(t *testing.T) {
	for _, n := range []int{1, 2, 17, 200, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCrowd(t, Rules{Rate: 1e9})
			flows := c.add(Owner{User: "alice", Job: "j"}, n)
			c.settle()
			c.run(4 * time.Second)
			near(t, "all", c.sum(flows), 4*1e9/8, 0.03)
			if j := c.jain(flows); j < 0.95 {
				t.Errorf("Jain index %.3f, want 0.95", j)
			}
		})
	}
}

// A user with more links gets no larger share.
func TestFairAmongUsers(t *testing.T) {
	c := newCrowd(t, Rules{Rate: 1e9})
	many := c.add(Owner{User: "alice", Job: "a"}, 300)
	one := c.add(Owner{User: "bob", Job: "b"}, 1)
	c.settle()
	c.run(4 * time.Second)
	near(t, "alice", c.sum(many), 2*1e9/8, 0.1)
	near(t, "bob", c.sum(one), 2*1e9/8, 0.1)
	if j := c.jain(many); j < 0.95 {
		t.Errorf("among alice's links: Jain index %.3f, want 0.95", j)
	}
}

// A flow that asks for little at a time gets what it asks for, and both directions of a link count
// as one.
func TestSmallRequestsAndBothWays(t *testing.T) {
	c := newCrowd(t, Rules{User: Limits{Rate: 1e8}})
	both := c.add(Owner{User: "alice", Job: "a"}, 1)
	both = append(both, both[0].Link().Flow(1))
	c.flows = append(c.flows, both[1])
	single := c.add(Owner{User: "alice", Job: "a"}, 1)
	c.settle()
	c.run(4 * time.Second)
	near(t, "the link that sends both ways", c.sum(both), 2*1e8/8, 0.1)
	near(t, "the other", c.sum(single), 2*1e8/8, 0.1)
}

// TestAgainstFluid compares with a fluid model: a user gets as much of the total as every other,
// unless a limit of the user is lower.
func TestAgainstFluid(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		rates := func() Rate { return Rate(rnd.IntN(2)) * Rate(1e7*math.Pow(10, 2*rnd.Float64())) }
		r := Rules{Rate: Rate(1e8 * (1 + 9*rnd.Float64())), User: Limits{Rate: rates()}, Project: Limits{Rate: rates()}, Job: Limits{Rate: rates()}}
		c := newCrowd(t, r)
		var users [][]*Flow
		var caps []float64
		for u := range 1 + rnd.IntN(5) {
			most := 0.0
			var flows []*Flow
			for j := range 1 + rnd.IntN(4) {
				job := overlay.JobID(fmt.Sprintf("j%d-%d", u, j))
				flows = append(flows, c.add(Owner{User: fmt.Sprint("u", u), Project: fmt.Sprint("p", u), Job: job}, 1+rnd.IntN(20))...)
				most += r.Job.Rate.bytes()
			}
			for _, l := range []Limits{r.User, r.Project} {
				if l.Rate > 0 && (most == 0 || l.Rate.bytes() < most) {
					most = l.Rate.bytes()
				}
			}
			if most == 0 {
				most = math.Inf(1)
			}
			users, caps = append(users, flows), append(caps, most)
		}
		const seconds = 5
		c.run(seconds * time.Second)
		for i, want := range pour(r.Rate.bytes(), caps) {
			near(t, fmt.Sprintf("seed %d, %+v: user %d", seed, r, i), c.sum(users[i]), seconds*want, 0.12)
		}
	}
}

// pour shares total among vessels of those sizes.
func pour(total float64, sizes []float64) []float64 {
	got := make([]float64, len(sizes))
	for left := total; ; {
		open := 0
		for i := range sizes {
			if got[i] < sizes[i] {
				open++
			}
		}
		if open == 0 || left < 1 {
			return got
		}
		each := left / float64(open)
		for i := range sizes {
			add := min(each, sizes[i]-got[i])
			got[i] += add
			left -= add
		}
	}
}

// In no interval does more pass than the rate, a burst and what was granted in advance.
func TestNeverFaster(t *testing.T) {
	const rate = 8e6 // 1 MB/s
	c := newCrowd(t, Rules{Job: Limits{Rate: rate}})
	flows := c.add(Owner{Job: "j"}, 8)
	for range 40 {
		before := c.sum(flows)
		c.run(100 * time.Millisecond)
		if moved := c.sum(flows) - before; moved > 1e5+minBurst+minPiece {
			t.Errorf("%d bytes within 100 ms", moved)
		}
	}
	near(t, "all", c.sum(flows), 4e6, 0.05)
}

// checkLines checks that each queue is a heap whose classes know their index.
func (c *crowd) checkLines() {
	c.t.Helper()
	for _, s := range c.lines {
		for i, class := range s.line {
			if class.place != i || class.first == nil || s.line.Less(i, max(i-1, 0)/2) {
				c.t.Fatalf("the class at place %d of a line: %+v", i, class)
			}
		}
	}
}

// Cancelled requests and ended links leave those behind them in order.
func TestCancelAndRelease(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		c := newCrowd(t, Rules{Rate: 1e8, User: Limits{Rate: 6e7}, Job: Limits{Rate: 5e7}})
		for i := range 30 {
			c.add(Owner{User: fmt.Sprint(i % 3), Job: overlay.JobID(fmt.Sprint(i % 5))}, 1)
		}
		for range 50 {
			c.run(20 * time.Millisecond)
			c.checkLines()
			i := rnd.IntN(len(c.flows))
			f := c.flows[i]
			c.Return(f, rnd.IntN(minPiece))
			c.checkLines()
			if rnd.IntN(2) == 0 {
				c.Cancel(f)
				continue
			}
			c.Release(f.Link())
			c.flows = append(c.flows[:i], c.flows[i+1:]...)
			if rnd.IntN(3) > 0 {
				c.add(f.Link().Owner(), 1)
			}
			if len(c.flows) == 0 {
				break
			}
		}
		for _, f := range c.flows {
			c.Release(f.Link())
		}
		if ready, next := c.Advance(nil, c.now); len(ready) > 0 || !next.IsZero() {
			t.Errorf("seed %d: without links, %d flows go on, next look at %v", seed, len(ready), next)
		}
		c.Tidy(c.now.Add(time.Minute))
		if len(c.users)+len(c.projects)+len(c.jobs)+len(c.total.sharers)+c.total.links != 0 {
			t.Errorf("seed %d: something is remembered of links that ended", seed)
		}
	}
}

// Granted bytes that were returned cost nothing.
func TestReturn(t *testing.T) {
	c := newCrowd(t, Rules{User: Limits{Rate: 8e6}})
	f := c.add(Owner{User: "alice", Job: "j"}, 1)[0]
	for range 1000 {
		n, _ := c.Ask(f, 1<<20, c.now)
		if n == 0 {
			t.Fatal("the bucket is empty, and nothing was used")
		}
		c.Return(f, n)
	}
}

// A link that reconnects often keeps its debt.
func TestReconnectingDoesNotHelp(t *testing.T) {
	c := newCrowd(t, Rules{Job: Limits{Rate: 8e6}})
	total := 0
	for range 200 { // 2 s
		f := c.add(Owner{Job: "j"}, 1)[0]
		for {
			n, _ := c.Ask(f, 1<<20, c.now)
			if n == 0 {
				break
			}
			total += n
		}
		c.Release(f.Link())
		c.Tidy(c.now)
		c.now = c.now.Add(10 * time.Millisecond)
	}
	if total > 2e6+minBurst+200*minPiece {
		t.Errorf("%d bytes passed in 2 s at 1 MB/s", total)
	}
}

func TestLinksAtATime(t *testing.T) {
	for _, tc := range []struct {
		rules Rules
		key   string
	}{
		{Rules{User: Limits{Links: 2}}, "quota.per_user.links"},
		{Rules{Project: Limits{Links: 2}}, "quota.per_project.links"},
		{Rules{Job: Limits{Links: 2}}, "quota.per_job.links"},
	} {
		c := newCrowd(t, tc.rules)
		o := Owner{User: "alice", Project: "p", Job: "j"}
		flows := c.add(o, 2)
		_, err := c.Admit(o, noon)
		no, ok := errors.AsType[*Refused](err)
		if !ok || no.Key != tc.key || !errors.Is(err, overlay.ErrOverloaded) {
			t.Errorf("%+v: a third link: %v", tc.rules, err)
		}
		if _, err := c.Admit(Owner{User: "bob", Project: "q", Job: "k"}, noon); err != nil {
			t.Errorf("%+v: somebody else's: %v", tc.rules, err)
		}
		c.Release(flows[0].Link())
		if _, err := c.Admit(o, noon); err != nil {
			t.Errorf("%+v: after one ended: %v", tc.rules, err)
		}
	}
}

// Without a known user every job counts as one; without a project no project's limit applies.
func TestUnknownOwner(t *testing.T) {
	c := newCrowd(t, Rules{User: Limits{Links: 1}, Project: Limits{Links: 1}})
	c.add(Owner{Job: "a"}, 1)
	c.add(Owner{Job: "b"}, 1)
	if _, err := c.Admit(Owner{Job: "a"}, noon); err == nil {
		t.Error("a job of an unknown user has two links, one is allowed")
	}
}

// An owner who used up the month is slowed, and gets no new links until the next.
func TestMonth(t *testing.T) {
	c := newCrowd(t, Rules{User: Limits{Month: 1e6}, Project: Limits{Month: 5e6}, Trickle: 8e5})
	o := Owner{User: "alice", Project: "p", Job: "j"}
	f := c.add(o, 1)[0]
	if c.Count(o, 999_999, noon) || f.Link().Paced() {
		t.Error("slowed before the month is used up")
	}
	if !c.Count(o, 1, noon) {
		t.Error("the month is used up, and nothing changed")
	}
	if r, key := f.Link().Limit(); r != 8e5 || key != "quota.per_user.rate" {
		t.Errorf("held to %v by %q, want the trickle", r, key)
	}
	c.run(10 * time.Second)
	near(t, "the trickle", c.moved[f], 1e6, 0.2)

	_, err := c.Admit(o, noon)
	if no, ok := errors.AsType[*Refused](err); !ok || no.Key != "quota.per_user.bytes_month" {
		t.Errorf("a new link: %v", err)
	}
	bob := Owner{User: "bob", Project: "p", Job: "k"}
	c.add(bob, 1)
	c.Count(Owner{User: "carol", Project: "p"}, 4e6, noon)
	if _, err = c.Admit(bob, noon); err == nil {
		t.Error("the project's month is used up, and a link is admitted")
	}

	december := noon.AddDate(0, 1, 0)
	if !c.Tidy(december) {
		t.Error("the month is over, and nothing changed")
	}
	if f.Link().Paced() {
		t.Error("still slowed in the next month")
	}
	if _, err := c.Admit(o, december); err != nil {
		t.Errorf("in the next month: %v", err)
	}
}

// New rules apply to live links, including waiting ones.
func TestSetRules(t *testing.T) {
	c := newCrowd(t, Rules{User: Limits{Rate: 8e5}})
	f := c.add(Owner{User: "alice", Job: "j"}, 1)[0]
	c.run(time.Second)
	slow := c.moved[f]
	c.SetRules(Rules{User: Limits{Rate: 8e7}}, c.now)
	c.run(time.Second)
	near(t, "after the change", c.moved[f]-slow, 1e7, 0.1)
	if n, _ := c.Ask(f.Link().Flow(1), 1, c.now); n != 0 {
		t.Fatal("expected to wait")
	}
	c.SetRules(Rules{}, c.now)
	if ready, _ := c.Advance(nil, c.now); len(ready) != 2 {
		t.Errorf("no limit any more: %d of 2 go on", len(ready))
	}
	if f.Link().Paced() {
		t.Error("no limit any more, and still paced")
	}
}

// BenchmarkTurn is one turn of one of 2000 waiting links, at three stages.
func BenchmarkTurn(b *testing.B) {
	const rate = 1e10
	q := New(Rules{Rate: rate, User: Limits{Rate: rate}, Job: Limits{Rate: rate}}, nil, noon)
	now := noon
	turns := 0
	ask := func(f *Flow) {
		for pass := 1; pass > 0; turns++ {
			pass, _ = q.Ask(f, 1<<20, now)
		}
	}
	for range 2000 {
		l, err := q.Admit(Owner{User: "alice", Job: "j"}, now)
		if err != nil {
			b.Fatal(err)
		}
		ask(l.Flow(0))
	}
	var ready []*Flow
	b.ReportAllocs()
	b.ResetTimer()
	for turns = 0; turns < b.N; {
		now = now.Add(time.Millisecond)
		ready, _ = q.Advance(ready[:0], now)
		for _, f := range ready {
			ask(f)
		}
	}
}

// A waiting flow reports what it waits for.
func TestWaitsFor(t *testing.T) {
	now := time.Unix(1000, 0)
	q := New(Rules{Rate: 1e9, Job: Limits{Rate: 8e6}}, nil, now)
	l, err := q.Admit(Owner{Job: "j"}, now)
	if err != nil {
		t.Fatal(err)
	}
	f := l.Flow(0)
	for i := 0; ; i++ {
		if rate, rule := f.WaitsFor(); rate != 0 || rule != "" {
			t.Fatalf("waits for %v by %q before it has to", rate, rule)
		}
		if pass, _ := q.Ask(f, 1<<20, now); pass == 0 {
			break
		}
		if i > 1000 {
			t.Fatal("it never has to wait")
		}
	}
	if rate, rule := f.WaitsFor(); rate != 8e6 || rule != "quota.per_job.rate" {
		t.Errorf("waits for %v by %q", rate, rule)
	}
	q.Cancel(f)
	if rate, rule := f.WaitsFor(); rate != 0 || rule != "" {
		t.Errorf("waits for %v by %q after all", rate, rule)
	}
}

func TestLowest(t *testing.T) {
	rules := Rules{Rate: 100, User: Limits{Rate: 50}, Project: Limits{Rate: 20}, Job: Limits{Rate: 50}}
	if rate, key := rules.Lowest(true); rate != 20 || key != "quota.per_project.rate" {
		t.Errorf("of a project: %v by %s", rate, key)
	}
	if rate, key := rules.Lowest(false); rate != 50 || key != "quota.per_job.rate" {
		t.Errorf("of none: %v by %s", rate, key)
	}
	if rate, key := (Rules{}).Lowest(true); rate != 0 || key != "" {
		t.Errorf("no limits: %v by %s", rate, key)
	}
}
