package reserve

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// line is a node at which submissions wait, and its clock.
type line struct {
	t    *testing.T
	node *Node
	now  time.Time
	keys uint16
}

func newLine(t *testing.T, policy Policy) *line {
	policy.Allow = []Rule{{Identity: "*"}}
	n, err := NewNode(1, policy)
	if err != nil {
		t.Fatal(err)
	}
	return &line{t: t, node: n, now: epoch}
}

// asks lets a user ask for a job, and returns the key and the refusal; "": it is booked.
func (l *line) asks(user, job string, more ...func(*Ask)) (Key, string) {
	l.keys++
	m := Ask{Key: Key{byte(l.keys), byte(l.keys >> 8), 1}, Job: overlay.JobID(job), Processes: 1, Queue: true, Waited: 1}
	for _, f := range more {
		f(&m)
	}
	answer, _ := l.node.Receive(Requester{Identity: user}, m, l.now)
	switch a := answer.(type) {
	case NOK:
		return m.Key, string(a.Reason) + ": " + a.Text
	case OK:
		return m.Key, ""
	}
	l.t.Fatalf("%T", answer)
	return Key{}, ""
}

// starts starts a booked job, which then runs.
func (l *line) starts(user string, key Key) {
	l.t.Helper()
	by, hold := Requester{Identity: user}, l.node.held[key].hold
	if a, _ := l.node.Receive(by, Start{key, hold, []allocate.Process{{}}}, l.now); a != (Started{key}) {
		l.t.Fatalf("%+v", a)
	}
	l.node.Receive(by, Commit{key, hold}, l.now)
}

// books is asks for what must be booked.
func (l *line) books(user, job string) Key {
	l.t.Helper()
	key, why := l.asks(user, job)
	if why != "" {
		l.t.Fatalf("%s of %s: %s", job, user, why)
	}
	return key
}

// refuses is asks for what must be refused so.
func (l *line) refuses(user, job, part string, more ...func(*Ask)) {
	l.t.Helper()
	if _, why := l.asks(user, job, more...); !strings.Contains(why, part) || why == "" {
		l.t.Fatalf("%s of %s: %q, want %q", job, user, why, part)
	}
}

func TestQueueFirstComesFirst(t *testing.T) {
	l := newLine(t, Policy{Jobs: 1, Processes: 1})
	running := l.books("a", "j1")
	l.starts("a", running)
	l.refuses("b", "j2", "busy: 1 jobs are held or run, the owner allows 1")
	l.now = l.now.Add(time.Second)
	l.refuses("c", "j3", "1 jobs are held")
	l.node.Exited(running)
	l.refuses("c", "j3", "come first")
	l.refuses("d", "j4", "come first", func(m *Ask) { m.Queue = false })
	key := l.books("b", "j2")
	l.refuses("c", "j3", "1 jobs are held")
	l.starts("b", key)
	l.node.Exited(key)
	l.books("c", "j3")
}

// A submission that said elsewhere that it waits comes first, but not for more than the bound.
func TestQueueClaims(t *testing.T) {
	for _, c := range []struct {
		claims time.Duration
		first  bool
	}{{5 * time.Second, true}, {2 * time.Second, false}, {time.Hour, false}, {0, false}, {-time.Hour, false}} {
		l := newLine(t, Policy{Jobs: 1, Processes: 1})
		running := l.books("a", "j1")
		l.starts("a", running)
		l.refuses("b", "j2", "busy")
		l.now = l.now.Add(3 * time.Second)
		if c.claims == time.Hour {
			l.now = l.now.Add(6 * time.Second)
			l.refuses("b", "j2", "busy")
			l.now = l.now.Add(6 * time.Second)
			l.refuses("b", "j2", "busy")
		}
		l.refuses("c", "j3", "busy", func(m *Ask) { m.Waited = c.claims })
		l.node.Exited(running)
		if _, why := l.asks("b", "j2"); (why != "") != c.first {
			t.Errorf("waited %v: b is told %q", c.claims, why)
		}
	}
}

// The job of a user who has none here comes before the next of one who has, however long that waits.
func TestQueueIsFair(t *testing.T) {
	l := newLine(t, Policy{Jobs: 2, Processes: 1})
	first, second := l.books("a", "j1"), l.books("a", "j2")
	l.starts("a", first)
	l.starts("a", second)
	l.refuses("a", "j3", "busy")
	l.now = l.now.Add(5 * time.Second)
	l.refuses("b", "j4", "busy")
	l.node.Exited(first)
	l.refuses("a", "j3", "come first")
	l.books("b", "j4")
}

// No room is kept for those that gave it back, nor for those that have asked once: they may run elsewhere.
func TestQueueForgivesSpares(t *testing.T) {
	l := newLine(t, Policy{Jobs: 1, Processes: 1})
	spare := l.books("a", "j1")
	l.node.Receive(Requester{Identity: "a"}, Cancel{spare}, l.now)
	running := l.books("b", "j2")
	l.starts("b", running)
	l.refuses("c", "j3", "busy", func(m *Ask) { m.Waited = 0 })
	l.node.Exited(running)
	l.now = l.now.Add(time.Second)
	l.books("d", "j4")
	l.now = l.now.Add(time.Hour) // its lease ends
	l.books("e", "j5")
}

// Room is kept for a time only, until there was none again; who does not ask any more is forgotten.
func TestQueueKeepsRoomForATime(t *testing.T) {
	l := newLine(t, Policy{Jobs: 1, Processes: 1})
	running := l.books("a", "j1")
	l.starts("a", running)
	l.refuses("b", "j2", "busy")
	l.node.Exited(running)
	l.refuses("c", "j3", "come first")
	l.now = l.now.Add(keptTime)
	l.refuses("c", "j3", "come first")
	l.now = l.now.Add(1)
	key := l.books("c", "j3")
	l.refuses("b", "j2", "1 jobs are held") // room is kept for it again
	l.node.Receive(Requester{Identity: "c"}, Cancel{key}, l.now)
	l.refuses("c", "j5", "come first")
	l.now = l.now.Add(waiterTime + 1)
	l.books("d", "j6")
	if n := len(l.node.queue.all); n != 1 {
		t.Errorf("%d are remembered, and one asks", n)
	}
}

// Room is not kept for what does not fit it.
func TestQueueLetsSmallJobsPass(t *testing.T) {
	l := newLine(t, Policy{Jobs: 3, Processes: 1, Memory: 100})
	memory := func(n int64) func(*Ask) { return func(m *Ask) { m.Memory = n } }
	if _, why := l.asks("a", "j1", memory(60)); why != "" {
		t.Fatal(why)
	}
	l.refuses("b", "j2", "memory", memory(50))
	if _, why := l.asks("c", "j3", memory(10)); why != "" {
		t.Error(why)
	}
	l.refuses("b", "j2", "memory", memory(31))
	l.now = l.now.Add(1)
	l.refuses("b", "j2", "memory", memory(31))
	l.node.queue.find("b", "j2").ask.Memory = 30 // fits
	l.refuses("c", "j4", "come first", memory(10))
}

func TestQueueIsBounded(t *testing.T) {
	l := newLine(t, Policy{Jobs: 1, Processes: 1})
	l.books("x", "j0")
	for user := range 40 {
		for job := range maxWaiting + 5 {
			l.refuses(fmt.Sprint("u", user), fmt.Sprint("j", job), "busy")
		}
		if n := l.node.queue.of(fmt.Sprint("u", user)); n > maxWaiting {
			t.Fatalf("%d of one user wait", n)
		}
	}
	if n := len(l.node.queue.all); n != maxWaiters {
		t.Errorf("%d wait", n)
	}
}

// However jobs come, for one node and for several: each gets its turn, no user's only job waits while
// another user's hundred pass, and no room is idle for long while a job for it waits.
func TestQueueRandomly(t *testing.T) {
	seeds := uint64(4)
	if testload.Full() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		nodes := make([]*line, 1+rng.IntN(3))
		for i := range nodes {
			nodes[i] = newLine(t, Policy{Jobs: 1 + rng.IntN(3), Processes: 1, Lease: time.Minute})
		}
		type job struct {
			user, name string
			on         []*line // all of them at once
			keys       []Key
			asks, ends int // seconds
		}
		var jobs []*job
		for i := range 60 {
			j := &job{user: fmt.Sprint("u", min(rng.IntN(6), 3)), name: fmt.Sprint("job", i), asks: rng.IntN(30)}
			for _, n := range rng.Perm(len(nodes))[:1+rng.IntN(len(nodes))] {
				j.on = append(j.on, nodes[n])
			}
			jobs = append(jobs, j)
		}
		running, left := []*job{}, len(jobs)
		idle := 0
		for second := 0; left > 0; second++ {
			if second > 60*12*4 {
				t.Fatalf("seed %d: %d jobs never had their turn", seed, left)
			}
			for _, n := range nodes {
				n.now = epoch.Add(time.Duration(second) * time.Second)
			}
			for i := 0; i < len(running); i++ {
				if j := running[i]; j.ends == second {
					for k, n := range j.on {
						n.node.Exited(j.keys[k])
					}
					running = append(running[:i], running[i+1:]...)
					i--
				}
			}
			rng.Shuffle(len(jobs), func(a, b int) { jobs[a], jobs[b] = jobs[b], jobs[a] })
			begun := 0
			for _, j := range jobs {
				if j.asks > second || j.ends > 0 {
					continue
				}
				refused := false
				j.keys = make([]Key, len(j.on))
				for k, n := range j.on {
					n.keys++
					m := Ask{Key: Key{byte(n.keys), byte(n.keys >> 8), 1}, Job: overlay.JobID(j.name), Processes: 1, Queue: true, Waited: time.Duration(second-j.asks) * time.Second}
					a, _ := n.node.Receive(Requester{Identity: j.user}, m, n.now)
					if _, ok := a.(OK); !ok {
						refused = true
					}
					j.keys[k] = m.Key
				}
				for k, key := range j.keys {
					if refused {
						j.on[k].node.Receive(Requester{Identity: j.user}, Cancel{key}, j.on[k].now)
					} else {
						j.on[k].starts(j.user, key)
					}
				}
				if !refused {
					j.ends = second + 1 + rng.IntN(10)
					running = append(running, j)
					left--
					begun++
				}
			}
			waiting := false
			for _, j := range jobs {
				waiting = waiting || j.asks <= second && j.ends == 0
			}
			if idle++; begun > 0 || len(running) > 0 || !waiting {
				idle = 0
			}
			if idle > int(keptTime/time.Second)+2 {
				t.Fatalf("seed %d: nothing runs although jobs wait", seed)
			}
		}
	}
}
