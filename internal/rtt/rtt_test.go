package rtt

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestRTO(t *testing.T) {
	var e Estimate
	for _, st := range []struct{ sample, srtt, variation, rto time.Duration }{
		{0, 0, 0, time.Second},
		{800 * ms, 800 * ms, 400 * ms, 2400 * ms},
		{800 * ms, 800 * ms, 300 * ms, 2000 * ms},
		{1600 * ms, 900 * ms, 425 * ms, 2600 * ms},
	} {
		if st.sample > 0 {
			e = e.Add(st.sample)
		}
		if e.SRTT != st.srtt || e.Var != st.variation || e.RTO(0) != st.rto {
			t.Errorf("after %v: %+v, RTO %v; want %+v", st.sample, e, e.RTO(0), st)
		}
	}
	for range 100 {
		e = e.Add(600 * ms)
	}
	if r := e.RTO(0); r < 800*ms || r > 801*ms {
		t.Errorf("on a steady path of 600 ms the RTO is %v", r)
	}
	for n, want := range []time.Duration{800 * ms, 1600 * ms, 3200 * ms} {
		if got := (Estimate{SRTT: 600 * ms}).RTO(n); got != want {
			t.Errorf("RTO %d is %v, want %v", n, got, want)
		}
	}
	if got := (Estimate{SRTT: 600 * ms}).RTO(80); got != MaxRTO {
		t.Errorf("the longest is %v", got)
	}
}

// An answer is waited for during four round trips and a second at least, whether the path was measured or not.
func TestAnswer(t *testing.T) {
	for _, trip := range []time.Duration{ms, 20 * ms, 600 * ms, time.Second, 1400 * ms} {
		least := 4*trip + time.Second
		for name, e := range map[string]Estimate{"unknown": {}, "first": Estimate{}.Add(trip), "steady": {SRTT: trip}} {
			if got := e.Answer(1); got < least {
				t.Errorf("%s, %v: %v, want %v at least", name, trip, got, least)
			}
		}
		if got := (Estimate{SRTT: trip}).Answer(1); got > least {
			t.Errorf("%v: %v", trip, got)
		}
	}
	if got := (Estimate{SRTT: 100 * ms, Var: 10 * ms}).Answer(1); got != 1560*ms {
		t.Errorf("on a path that varies: %v", got)
	}
	if a, b := (Estimate{SRTT: ms}).Answer(3), (Estimate{SRTT: ms}).Answer(1); a <= b {
		t.Errorf("three round trips may take %v, one %v", a, b)
	}
}

// What is sent again 200 ms after a round trip is waited for twice as long; on a path that loses much, longer.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		trip           time.Duration
		sent, repeated uint64
		want           time.Duration
	}{
		{20 * ms, 0, 0, 440 * ms},
		{20 * ms, 1000, 0, 440 * ms},
		{20 * ms, 1000, 1, 440 * ms},
		{600 * ms, 1000, 0, 1600 * ms},
		{600 * ms, 1000, 30, 1600 * ms},
		{600 * ms, 1000, 60, 3200 * ms},
		{600 * ms, 1000, 300, 25600 * ms},
		{600 * ms, 10, 20, 25600 * ms},
	} {
		if got := (Estimate{SRTT: c.trip}).Silence(c.sent, c.repeated); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestLonger(t *testing.T) {
	var none Estimate
	near, far := Estimate{SRTT: ms}, Estimate{SRTT: 600 * ms}
	for _, c := range []struct{ a, b, want Estimate }{{none, near, near}, {near, none, near}, {near, far, far}, {far, near, far}, {none, none, none}} {
		if got := c.a.Longer(c.b); got != c.want {
			t.Errorf("of %v and %v: %v", c.a, c.b, got)
		}
	}
}
