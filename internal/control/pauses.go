package control

import "time"

// How Keep paces itself. A peer that is away is tried often: whoever waits for
// a connection waits for that, too, and a refused try costs a few packets. A
// thousand peers that wait for one daemon come back spread over longestPause.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	tellEvery    = 10 * time.Second // in the log, of failures in a row
)

// pauses says how long to wait after each failed try, and which to log. The
// zero value is ready for use.
type pauses struct {
	longest time.Duration // 0: longestPause
	wait    time.Duration // the last one; 0 before the first failure
	told    time.Time     // when a failure was logged last
}

// next is called after each failure; accepted says that there was a session in
// between. The result is to be spread by half of it either way.
func (p *pauses) next(accepted bool, now time.Time) (wait time.Duration, tell bool) {
	longest := p.longest
	if longest <= 0 {
		longest = longestPause
	}
	if accepted || p.wait == 0 {
		p.wait, tell = firstPause, true
	} else {
		p.wait = 2 * p.wait
	}
	p.wait = min(p.wait, longest)
	if tell = tell || now.Sub(p.told) >= tellEvery; tell {
		p.told = now
	}
	return p.wait, tell
}
