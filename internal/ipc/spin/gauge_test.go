package spin

import (
	"testing"
	"time"
)

// play makes a gauge decide about waits, each for data after a given time. It returns the time
// spent on waits that spun and their number.
func play(g *gauge, processors int, waits ...time.Duration) (burnt time.Duration, spun int) {
	const step = time.Microsecond // of a poll and a yield
	now := time.Duration(0)
	for _, data := range waits {
		if g.worthwhile() {
			spun++
			start := now
			g.begin(now, processors)
			for {
				if now-start >= data {
					g.end(now)
					break
				}
				if !g.keepSpinning(now) {
					break
				}
				now += step
			}
			burnt += now - start
		}
		now += time.Second
	}
	return burnt, spun
}

func repeat(n int, waits ...time.Duration) []time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, waits...)
	}
	return all
}

const (
	soon  = 5 * time.Microsecond
	never = time.Hour
)

func TestGaugeSpinsWhileItPays(t *testing.T) {
	g := newGauge(0)
	if _, spun := play(&g, 2, repeat(1000, soon)...); spun != 1000 {
		t.Errorf("%d of 1000 waits that are answered soon spun", spun)
	}
	if _, spun := play(&g, 2, repeat(300, soon, never, never)...); spun != 900 {
		t.Errorf("%d of 900 waits spun, one in three answered soon", spun)
	}
}

func TestGaugeBoundsWhatIsBurntInVain(t *testing.T) {
	const waits = 10_000
	g := newGauge(0)
	burnt, spun := play(&g, 2, repeat(waits, never)...)
	want := most + (waits-most)/probeOne
	if spun != want {
		t.Errorf("%d of %d waits in vain spun, want %d", spun, waits, want)
	}
	if limit := time.Duration(want) * defaultBudget; burnt > limit {
		t.Errorf("burnt %v in vain, more than %v", burnt, limit)
	}
	// One useful wait in four is too few.
	g = newGauge(0)
	if _, spun := play(&g, 2, repeat(waits/4, soon, never, never, never)...); spun > waits/2 {
		t.Errorf("%d of %d waits spun, one in four answered soon", spun, waits)
	}
}

func TestGaugeComesBack(t *testing.T) {
	g := newGauge(0)
	play(&g, 2, repeat(100, never)...)
	if _, spun := play(&g, 2, repeat(100, soon)...); spun <= 100-probeOne {
		t.Errorf("%d of 100 waits spun, answered soon after a time of waits in vain", spun)
	}
}

// A yield that returns late, after another process had the CPU, uses the account up at once, even
// if the data has arrived by then.
func TestGaugeGivesWayToOthers(t *testing.T) {
	g := newGauge(0)
	if !g.worthwhile() {
		t.Fatal("a new gauge should spin")
	}
	g.begin(0, 2)
	if !g.keepSpinning(time.Microsecond) {
		t.Fatal("should go on after 1 us")
	}
	g.end(4 * time.Millisecond)
	if g.worthwhile() {
		t.Error("still spins after losing the CPU for 4 ms")
	}
}

// With one processor a wait ends after a few turns of others, and spins while there are none.
func TestGaugeOfOneProcessor(t *testing.T) {
	polls := func(processors int, between ...time.Duration) (n int) {
		g := newGauge(0)
		now := time.Duration(0)
		for g.begin(now, processors); g.keepSpinning(now); n++ {
			now += between[n%len(between)]
		}
		return n
	}
	const quick, slow = minTurn / 4, 5 * minTurn
	if n := polls(1, slow); n != fewTurns {
		t.Errorf("%d polls, each after a turn of others", n)
	}
	if n := polls(1, quick, slow, quick); n < fewTurns*3-1 || n > fewTurns*3 {
		t.Errorf("%d polls, every third after a turn of others", n)
	}
	if n := polls(1, quick); n != int(defaultBudget/quick) {
		t.Errorf("%d polls of a processor that nobody else wants", n)
	}
	if n := polls(2, slow); n != int(defaultBudget/slow) {
		t.Errorf("%d polls of one of two processors", n)
	}
	g := newGauge(0)
	if _, spun := play(&g, 1, repeat(100, 2*time.Microsecond)...); spun != 100 {
		t.Errorf("%d of 100 waits spun, each answered soon", spun)
	}
}

// A read predicts a wait only with one processor, after one that paid for a wait, and not each
// time.
func TestGaugeForesees(t *testing.T) {
	g := newGauge(0)
	foreseen := func(processors int) (n int) {
		for range probeOne {
			if g.predict(processors) {
				n++
			}
		}
		return n
	}
	if n := foreseen(1); n != 0 {
		t.Errorf("foresaw %d waits without a reason", n)
	}
	g.expect = true
	if n := foreseen(2); n != 0 {
		t.Errorf("foresaw %d waits with two processors", n)
	}
	if n := foreseen(1); n != probeOne-1 {
		t.Errorf("foresaw %d waits of %d", n, probeOne)
	}
	g.credit = 0
	if n := foreseen(1); n != 0 {
		t.Errorf("foresaw %d waits when spinning is not worth it", n)
	}
}

func TestGaugeBudget(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{
		{0, defaultBudget}, {-1, 0}, {10 * time.Microsecond, 10 * time.Microsecond}, {time.Second, maxBudget},
	} {
		g := newGauge(c.asked)
		if g.budget != c.want {
			t.Errorf("a budget of %v became %v, want %v", c.asked, g.budget, c.want)
		}
		if g.worthwhile() != (c.want > 0) {
			t.Errorf("with a budget of %v: worth spinning is %v", c.asked, g.worthwhile())
		}
	}
}
