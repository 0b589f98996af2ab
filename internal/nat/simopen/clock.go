package simopen

import "time"

// A Sample is one question to a server's clock. Sent and Received are by the
// local clock, Server by the server's.
type Sample struct {
	Sent, Server, Received time.Time
}

// drift bounds how fast two clocks diverge: 100 parts per million is twice the drift of common
// quartz.
const drift = 100e-6

// maxSamples bounds what a Clock remembers; the oldest sample is dropped.
const maxSamples = 32

// A Clock estimates how far a server's clock is ahead of the local one. The zero value has no
// samples. It reads no clock itself, and is not safe for concurrent use.
type Clock struct {
	samples []Sample
}

// Estimate is the result of a Clock.
type Estimate struct {
	Offset time.Duration // the server's clock minus the local clock
	Error  time.Duration // the offset is right within ± this much
	RTT    time.Duration // shortest round trip to the server among the samples
}

// Local converts a time by the server's clock to the local one.
func (e Estimate) Local(server time.Time) time.Time { return server.Add(-e.Offset) }

// Server converts a local time to the server's clock.
func (e Estimate) Server(local time.Time) time.Time { return local.Add(e.Offset) }

// Add adds a sample. A sample that ends before it began means that the clock was set meanwhile, and
// is ignored.
func (c *Clock) Add(s Sample) {
	if s.Received.Before(s.Sent) {
		return
	}
	if len(c.samples) == maxSamples {
		c.samples = append(c.samples[:0], c.samples[1:]...)
	}
	c.samples = append(c.samples, s)
}

// Estimate returns the best estimate at the local time now, and false when there is no sample.
//
// The server read its clock somewhere between Sent and Received, so the middle is wrong by at most
// half the round trip: queueing makes samples worse and never better, and the shortest round trip
// is the best one. The error of a sample grows with its age at the rate at which clocks drift.
func (c *Clock) Estimate(now time.Time) (Estimate, bool) {
	var best Estimate
	for i, s := range c.samples {
		rtt := s.Received.Sub(s.Sent)
		e := Estimate{
			Offset: s.Server.Sub(s.Sent.Add(rtt / 2)),
			Error:  rtt/2 + time.Duration(drift*float64(max(0, now.Sub(s.Received)))),
			RTT:    rtt,
		}
		if i > 0 {
			e.RTT = min(e.RTT, best.RTT)
			if e.Error > best.Error {
				e.Offset, e.Error = best.Offset, best.Error
			}
		}
		best = e
	}
	return best, len(c.samples) > 0
}
