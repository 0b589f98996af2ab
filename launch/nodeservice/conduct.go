package nodeservice

import "time"

// What an agent may say and how often it may hang up: a job has its agent's account, so it can take the
// agent's socket and speak in its place. Output that comes faster waits in the agent, and in the
// job's pipes; no honest agent hangs up but at its end.
const (
	agentRate   = 128 << 20        // bytes per second that a helper takes from one agent
	agentBurst  = 128 << 20        // bytes at once
	messageCost = 32 << 10         // bytes that a message counts besides its own
	steadyTime  = 10 * time.Second // for which a connection must last to count as made
	firstPause  = 100 * time.Millisecond
)

// conduct bounds what one agent can make its helper do. It has no clock, and belongs to the
// goroutine that reads the agent.
type conduct struct {
	level   float64   // bytes that may come now; negative: how many too many have come
	at      time.Time // of level
	since   time.Time // when the connection was made
	faulted bool      // a Fault was passed on
	tries   int       // connections that failed, or did not last, since one did
}

func newConduct(now time.Time) *conduct { return &conduct{level: agentBurst, at: now} }

// took counts a message, and returns for how long no other is to be read.
func (c *conduct) took(bytes int, now time.Time) time.Duration {
	c.level = min(agentBurst, c.level+agentRate*max(0, now.Sub(c.at)).Seconds()) - float64(bytes+messageCost)
	c.at = now
	return time.Duration(max(0, -c.level) / agentRate * float64(time.Second))
}

// connected records that a connection was made.
func (c *conduct) connected(now time.Time) { c.since = now }

// failed records that a connection broke, or could not be made, and returns for how long none is to be
// tried: not at all after the first, as it may be the agent's end.
func (c *conduct) failed(now time.Time) time.Duration {
	if !c.since.IsZero() && now.Sub(c.since) >= steadyTime {
		c.tries = 0
	}
	c.since = time.Time{}
	c.tries++
	if c.tries == 1 {
		return 0
	}
	return firstPause << min(c.tries-2, 4)
}
