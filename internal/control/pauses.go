package control

import "time"

// The waits of Keep. It retries an unreachable peer often: connection setups depend on it, and a
// refused try costs only a few packets. A thousand peers of one daemon reconnect spread over
// longestPause.
const (
	firstPause   = 100 * time.Millisecond // half of it after a session, whose peer can be reached in all likelihood
	longestPause = 2 * time.Second
	tellEvery    = 10 * time.Second // in the log, of consecutive failures
)

// pauses decides how long to wait after each failed try, and which failures to log. The zero value
// is ready for use.
type pauses struct {
	longest time.Duration // 0: longestPause
	wait    time.Duration // the last wait; 0 before the first failure
	logged  time.Time     // when a failure was last logged
}

// next is called after each failure; accepted means that there was a session in between. The caller
// must vary the result by up to half of it either way.
func (p *pauses) next(accepted bool, now time.Time) (wait time.Duration, tell bool) {
	longest := p.longest
	if longest <= 0 {
		longest = longestPause
	}
	switch {
	case accepted:
		p.wait, tell = firstPause/2, true
	case p.wait == 0:
		p.wait, tell = firstPause, true
	default:
		p.wait = 2 * p.wait
	}
	p.wait = min(p.wait, longest)
	if tell = tell || now.Sub(p.logged) >= tellEvery; tell {
		p.logged = now
	}
	return p.wait, tell
}
