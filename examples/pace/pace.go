// Package pace lets a program compute as fast as a slower processor would, so
// that a small machine can stand for several sites: work is done for real and
// then given the time that it would have taken. The program says how much work
// that was; the package knows no clock of the processor, so that whoever else
// wants the machine changes nothing as long as the real work is done in time.
// State lives in the Processor.
package pace

import (
	"context"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

const (
	// nap is the shortest wait: shorter ones are put together, since timers are
	// late by nearly as much.
	nap = 300 * time.Microsecond
	// maxCredit bounds what a late timer, or work that took too long, gives the
	// work behind it, which then waits that much less.
	maxCredit = 20 * time.Millisecond
)

// A Processor does so much work a second. It belongs to one goroutine.
type Processor struct {
	rate  float64
	owed  time.Duration // what its work should have taken more so far
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
}

// New returns a processor that does rate units of work a second, in any unit;
// 0 stands for as fast as this machine can.
func New(rate float64) *Processor { return &Processor{rate: rate, now: time.Now, sleep: sleep.For} }

// Do runs f, which is so much work, and returns when the processor would have
// done it, within a fraction of a millisecond. ctx ends the wait with its cause.
func (p *Processor) Do(ctx context.Context, work float64, f func()) error {
	if p.rate <= 0 {
		f()
		return nil
	}
	begun := p.now()
	f()
	p.owed += time.Duration(work/p.rate*float64(time.Second)) - p.now().Sub(begun)
	p.owed = max(p.owed, -maxCredit)
	if p.owed < nap {
		return nil
	}
	begun = p.now()
	if err := p.sleep(ctx, p.owed); err != nil {
		return err
	}
	p.owed = max(p.owed-p.now().Sub(begun), -maxCredit)
	return nil
}
