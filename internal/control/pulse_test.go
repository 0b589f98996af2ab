package control

import (
	"cmp"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/rtt"
)

// TestSilence simulates the peer: when it is heard, and the resulting verdicts.
func TestSilence(t *testing.T) {
	type step struct {
		at    time.Duration // ms, like all times here
		begin bool
		end   bool
		late  time.Duration // delay of this process's check
		read  time.Duration // time of the last byte so far
		acked uint64
		// reached means that the peer's kernel has acknowledged the ping.
		reached bool
		// rtt is the round trip, 0: 300 ms; what is lost is sent again 200 ms later.
		rtt            time.Duration
		sent, repeated uint64 // segments
		want           verdict
		wait           time.Duration
	}
	for name, steps := range map[string][]step{
		"no calls": {
			{at: 1000, wait: 4500},
			{at: 5500, read: 5010, wait: 5010}, // an answer to yamux's keepalive
			{at: 10_510, read: 10_020, wait: 5010},
			{at: 15_520, read: 10_020, want: ask, wait: 1000},
			{at: 16_520, read: 10_020, want: part, wait: 1000},
		},
		"a dead path": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 2499, wait: 1},
			{at: 2500, want: part, wait: 1000},
		},
		"a dead short path": {
			{at: 1000, begin: true, rtt: 20, wait: 220},
			{at: 1220, rtt: 20, want: ask, wait: 440},
			{at: 1659, rtt: 20, wait: 1},
			{at: 1660, rtt: 20, want: part, wait: 440},
		},
		"a dead path around half the world": {
			{at: 1000, begin: true, rtt: 200, wait: 400},
			{at: 1400, rtt: 200, want: ask, wait: 800},
			{at: 2200, rtt: 200, want: part, wait: 800},
		},
		"a dead path by satellite": {
			{at: 1000, begin: true, rtt: 600, wait: 800},
			{at: 1800, rtt: 600, want: ask, wait: 1600},
			{at: 3400, rtt: 600, want: part, wait: 1600},
		},
		"a dead path by satellite that loses 3 % each way": {
			{at: 1000, begin: true, rtt: 600, sent: 1000, repeated: 60, wait: 800},
			{at: 1800, rtt: 600, sent: 1000, repeated: 60, want: ask, wait: 3200},
			{at: 5000, rtt: 600, sent: 1000, repeated: 60, want: part, wait: 3200},
		},
		"a satellite that loses 30 %, and is heard late": {
			{at: 1000, begin: true, rtt: 600, sent: 100, repeated: 40, wait: 800},
			{at: 1800, rtt: 600, sent: 100, repeated: 40, want: ask, wait: 25_600},
			{at: 16_000, rtt: 600, read: 15_900, sent: 100, repeated: 44, wait: 1900},
		},
		"a peer beyond two satellites, which answers late": {
			{at: 1000, begin: true, rtt: 1400, wait: 1600},
			{at: 2600, rtt: 1400, acked: 100, want: ask, wait: 3200},
			{at: 5700, rtt: 1400, acked: 112, reached: true, wait: 3500},
		},
		"a stopped peer near by": {
			{at: 1000, begin: true, rtt: 1, wait: 201},
			{at: 1201, rtt: 1, acked: 100, want: ask, wait: 402},
			{at: 1603, rtt: 1, acked: 112, reached: true, wait: 2098},
			{at: 3701, rtt: 1, acked: 112, reached: true, want: part, wait: 2500},
		},
		"a dead path, whose call ends early": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 1600, end: true, wait: 900},
			{at: 2500, want: part, wait: 1000},
		},
		"a dead path and one call after the other": {
			{at: 1000, begin: true, read: 900, wait: 500},
			{at: 1300, end: true, read: 900, wait: 5100},
			{at: 1400, begin: true, read: 900, wait: 100},
			{at: 1500, read: 900, want: ask, wait: 1000},
			{at: 2500, read: 900, want: part, wait: 1000},
		},
		"a slow answer": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 1600, read: 1510, wait: 410},
			{at: 2010, read: 1510, wait: 5},
			{at: 2015, read: 1510, wait: 2*time.Millisecond + 500*time.Microsecond},
			{at: 2100, read: 1510, want: ask, wait: 1000},
			{at: 2110, read: 2105, wait: 550},
			{at: 2200, read: 2190, end: true, wait: 5490},
		},
		"a stopped peer, whose kernel acknowledges": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, acked: 100, want: ask, wait: 1000},
			{at: 2500, acked: 112, reached: true, wait: 1500},
			{at: 3999, acked: 112, reached: true, wait: 1},
			{at: 4000, acked: 112, reached: true, want: part, wait: 2500},
		},
		"a stopped peer, asked by more and more calls": {
			{at: 1000, begin: true, wait: 500},
			{at: 1200, begin: true, acked: 50, wait: 300},
			{at: 1500, acked: 100, want: ask, wait: 1000},
			{at: 2000, begin: true, acked: 200, reached: true, wait: 2000},
			{at: 3500, begin: true, acked: 300, reached: true, wait: 500},
			{at: 4000, acked: 400, reached: true, want: part, wait: 2500},
		},
		"a busy peer, which answers late": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, acked: 100, want: ask, wait: 1000},
			{at: 2500, acked: 112, reached: true, wait: 1500},
			{at: 3990, acked: 112, read: 3980, reached: true, wait: 1485},
		},
		"a ping behind much data on a slow path": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, acked: 100, want: ask, wait: 1000},
			{at: 2500, acked: 50_000, wait: 1000},
			{at: 3500, acked: 100_000, wait: 1000},
			{at: 4500, acked: 150_000, reached: true, wait: 1500},
			{at: 5900, acked: 150_000, read: 5890, reached: true, wait: 1990},
		},
		"a path that dies under much data": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, acked: 100, want: ask, wait: 1000},
			{at: 2500, acked: 50_000, wait: 1000},
			{at: 3500, acked: 50_000, want: part, wait: 1000},
		},
		"a stopped peer and a stall": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 6500, late: 4000, acked: 112, reached: true, wait: 1600},
			{at: 8100, acked: 112, reached: true, want: part, wait: 2500},
		},
		"an answer that lies unread because this process did not run": {
			{at: 1000, begin: true, wait: 500},
			{at: 4600, late: 3100, want: ask, wait: 1000},
			{at: 8600, late: 3000, wait: 100},
			{at: 8650, read: 8610, wait: 735},
		},
		"an answer before a stall": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 5500, late: 3000, read: 1600, want: ask, wait: 1000},
		},
		"a dead path and a stall": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 5500, late: 3000, wait: 100},
			{at: 5600, want: part, wait: 1000},
		},
		"a new call beside one that waits for long": {
			{at: 1000, begin: true, wait: 500},
			{at: 1500, want: ask, wait: 1000},
			{at: 21_000, read: 20_900, wait: 1900},
			{at: 22_000, begin: true, read: 20_900, wait: 500},
			{at: 22_500, read: 20_900, want: ask, wait: 1000},
			{at: 23_500, read: 20_900, want: part, wait: 1000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s silence
			for _, st := range steps {
				now, sg := st.at*time.Millisecond, sign{read: st.read * time.Millisecond, reached: st.reached}
				sg.sendState = sendState{acked: st.acked, path: rtt.Estimate{SRTT: cmp.Or(st.rtt, 300) * time.Millisecond}, segments: st.sent, repeated: st.repeated}
				if st.begin {
					s.begin(now, sg)
				}
				if st.end {
					s.calls--
				}
				s.slept(now, sg, st.late*time.Millisecond)
				want := st.wait
				if want < time.Millisecond { // counted in ms, not given as a duration
					want *= time.Millisecond
				}
				if got, wait := s.judge(now, sg); got != st.want || wait != want {
					t.Fatalf("at %d ms: %d, look again in %v; want %d, %v", st.at, got, wait, st.want, want)
				}
			}
		})
	}
}

// Over a link, whose other end has no kernel to acknowledge data, a peer has longer to answer, and still longer if it is
// far away.
func TestSilenceOverALink(t *testing.T) {
	for _, c := range []struct{ trip, first, word time.Duration }{
		{0, firstDoubt, 7 * time.Second},
		{20 * time.Millisecond, 260 * time.Millisecond, longWord},
		{1400 * time.Millisecond, 1400*time.Millisecond + 2800*time.Millisecond, 4*2800*time.Millisecond + time.Second},
	} {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		p := newPulse(Resilient{a}, 0)
		if c.trip > 0 {
			p.took(c.trip)
		}
		s := p.silence
		s.begin(0, sign{})
		for _, st := range []struct {
			at   time.Duration
			want verdict
			wait time.Duration
		}{{c.first, ask, c.word}, {c.first + c.word - 1, bear, 1}, {c.first + c.word, part, c.word}} {
			if got, wait := s.judge(st.at, sign{}); got != st.want || wait != st.wait {
				t.Errorf("at %v: %d, look again in %v; want %d, %v", st.at, got, wait, st.want, st.wait)
			}
		}
	}
}
