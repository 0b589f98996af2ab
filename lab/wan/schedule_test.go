package wan

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// slowLink is the simple model of a link without random draws: it remembers every packet and
// computes each time from the whole history.
type slowLink struct {
	shape Shape
	sent  []modelPacket
}

type modelPacket struct {
	size     int
	end, due time.Duration
}

func (m *slowLink) admit(now time.Duration, size int) (pass bool, due time.Duration) {
	end := now
	if m.shape.Rate > 0 {
		begin := now
		for _, p := range m.sent { // the link is busy until the last of them has left
			begin = max(begin, p.end)
		}
		took := time.Duration(float64(size) * 8e9 / float64(m.shape.Rate))
		limit := m.shape.Queue
		if limit == 0 {
			limit = max(128<<10, int(float64(m.shape.Rate)/8*2*m.shape.Delay.Seconds()))
		}
		if begin+took-now > time.Duration(float64(limit)*8e9/float64(m.shape.Rate)) {
			return false, 0
		}
		end = begin + took
	}
	due = end + m.shape.Delay
	for _, p := range m.sent { // and no packet overtakes
		due = max(due, p.due)
	}
	m.sent = append(m.sent, modelPacket{size, end, due})
	return true, due
}

// TestAdmitAgainstModel runs random traffic, with changes of shape in between,
// through the link and through the model.
func TestAdmitAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, m := newLink(seed, "a", "b"), slowLink{}
		var now time.Duration
		passed, dropped := 0, 0
		for i := range 600 {
			if i%200 == 0 {
				m.shape = Shape{
					Delay: time.Duration(r.IntN(20)) * time.Millisecond,
					Rate:  []int64{0, 1e6, 1e8, 3e9}[r.IntN(4)],
					Queue: []int{0, 3000, 100_000}[r.IntN(3)],
				}
			}
			now += time.Duration(r.ExpFloat64() * 100 * float64(time.Microsecond))
			size := 40 + r.IntN(1461)
			pass, due := m.admit(now, size)
			f, got, twice := l.admit(&m.shape, now, size)
			if (f == fatePass) != pass || got != due || twice {
				t.Fatalf("seed %d packet %d at %v, shape %+v: fate %d due %v, model: pass %v due %v",
					seed, i, now, m.shape, f, got, pass, due)
			}
			if pass {
				passed++
			} else {
				dropped++
			}
		}
		if passed == 0 {
			t.Errorf("seed %d: nothing passed of %d", seed, dropped)
		}
	}
}

func TestRateIsExact(t *testing.T) {
	for _, rate := range []int64{64_000, 10_000_000, 1_000_000_000, 10_000_000_000} {
		l, s := newLink(1, "a", "b"), Shape{Rate: rate, Queue: 1 << 40}
		const n, size = 10_000, 1500
		var due time.Duration
		for range n {
			_, due, _ = l.admit(&s, 0, size)
		}
		want := float64(n*size*8) / float64(rate)
		if off := math.Abs(due.Seconds()/want - 1); off > 1e-3 {
			t.Errorf("%d packets at %d bit/s take %v, should take %v s", n, rate, due, want)
		}
	}
}

func TestDrawsFollowTheirProbability(t *testing.T) {
	const n = 200_000
	for _, p := range []float64{0, 0.001, 0.1, 0.5, 1} {
		l := newLink(7, "a", "b")
		lost, twice := 0, 0
		for range n {
			if f, _, _ := l.admit(&Shape{Loss: p}, 0, 100); f == fateLost {
				lost++
			}
			if _, _, d := l.admit(&Shape{Duplicate: p}, 0, 100); d {
				twice++
			}
		}
		spread := 5*math.Sqrt(n*p*(1-p)) + 0.1 // five standard deviations
		for _, got := range []int{lost, twice} {
			if math.Abs(float64(got)-n*p) > spread {
				t.Errorf("%d of %d with probability %v", got, n, p)
			}
		}
	}
}

func TestJitter(t *testing.T) {
	const ms = time.Millisecond
	s := Shape{Delay: 10 * ms, Jitter: 4 * ms, Reorder: true}
	l := newLink(3, "a", "b")
	least, most, sum := time.Hour, time.Duration(0), time.Duration(0)
	const n = 100_000
	ordered := true
	var before time.Duration
	for i := range n {
		now := time.Duration(i) * 100 * time.Microsecond
		_, due, _ := l.admit(&s, now, 100)
		d := due - now
		least, most, sum = min(least, d), max(most, d), sum+d
		ordered = ordered && due >= before
		before = due
	}
	if least < 6*ms || least > 6*ms+ms/10 || most > 14*ms || most < 14*ms-ms/10 {
		t.Errorf("delays from %v to %v, want 6 to 14 ms", least, most)
	}
	if avg := sum / n; avg < 10*ms-ms/10 || avg > 10*ms+ms/10 {
		t.Errorf("mean delay %v, want 10 ms", avg)
	}
	if ordered {
		t.Error("Reorder kept the order")
	}
	s.Reorder = false
	before = 0
	for i := range n {
		_, due, _ := l.admit(&s, time.Duration(i)*100*time.Microsecond, 100)
		if due < before {
			t.Fatalf("packet %d overtakes", i)
		}
		before = due
	}
	big := Shape{Delay: ms, Jitter: 5 * ms, Reorder: true}
	for range 1000 {
		if _, due, _ := l.admit(&big, 0, 100); due < 0 {
			t.Fatal("due before arrival")
		}
	}
}

func TestEqualSeedsDoEqualThings(t *testing.T) {
	s := Shape{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.3, Duplicate: 0.2, Rate: 1e8}
	run := func(seed uint64, from string) (out []time.Duration) {
		l := newLink(seed, from, "b")
		for i := range 500 {
			f, due, twice := l.admit(&s, time.Duration(i)*time.Microsecond, 1000)
			if twice {
				due = -due
			}
			out = append(out, due+time.Duration(f))
		}
		return out
	}
	if !slices.Equal(run(1, "a"), run(1, "a")) {
		t.Error("equal seeds differ")
	}
	if slices.Equal(run(1, "a"), run(2, "a")) {
		t.Error("seeds 1 and 2 do the same")
	}
	if slices.Equal(run(1, "a"), run(1, "c")) {
		t.Error("two paths do the same")
	}
}

func TestExtremesDoNotOverflow(t *testing.T) {
	l, s := newLink(1, "a", "b"), Shape{Rate: 1, Queue: math.MaxInt, Delay: maxDelay, Jitter: maxDelay}
	var before time.Duration
	for range 100 {
		f, due, _ := l.admit(&s, time.Hour, 1<<31)
		if f == fatePass && due < before {
			t.Fatalf("due %v after %v", due, before)
		}
		before = due
	}
}

func TestPerPacket(t *testing.T) {
	for _, c := range []struct {
		s    Shape
		want bool
	}{
		{Shape{}, false},
		{Shape{Delay: time.Second, Jitter: time.Second}, false},
		{Shape{Rate: 499_999_999}, true},
		{Shape{Rate: 500_000_000}, false},
		{Shape{Loss: 0.01}, true},
		{Shape{Loss: 1}, false},
		{Shape{Duplicate: 1}, true},
		{Shape{Jitter: 1, Reorder: true}, true},
	} {
		if got := c.s.perPacket(); got != c.want {
			t.Errorf("%+v: %v", c.s, got)
		}
	}
}

func TestAssign(t *testing.T) {
	paths := []Path{{In: "a"}, {In: "a"}, {In: "b"}, {In: "c"}, {In: "b"}}
	for _, c := range []struct {
		limit, n int
		want     []int
		own      bool
	}{
		{5, 5, []int{0, 1, 2, 3, 4}, true},
		{4, 3, []int{0, 0, 1, 2, 1}, false},
		{2, 2, []int{0, 0, 1, 0, 1}, false},
		{1, 1, []int{0, 0, 0, 0, 0}, false},
	} {
		got, n, own := assign(paths, c.limit)
		if !slices.Equal(got, c.want) || n != c.n || own != c.own {
			t.Errorf("limit %d: %v, %d queues, own %v", c.limit, got, n, own)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, s := range []Shape{
		{Delay: -1}, {Delay: maxDelay + 1}, {Jitter: -1}, {Jitter: maxDelay + 1},
		{Loss: -0.1}, {Loss: 1.1}, {Loss: math.NaN()}, {Duplicate: 2}, {Duplicate: math.NaN()},
		{Rate: -1}, {Queue: -1},
	} {
		if s.Validate() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if err := (Shape{Delay: maxDelay, Jitter: maxDelay, Loss: 1, Duplicate: 1, Rate: 1, Queue: 1}).Validate(); err != nil {
		t.Error(err)
	}
}
