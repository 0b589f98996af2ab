package doctor

import (
	"context"
	"time"
)

// A long way is no fault. What is bounded may take some of its round trips longer than
// the bound, as many as TCP, TLS and a question need, or a lost packet of them.
const (
	tripsEach  = 4  // that a bound grows by
	tripsWhole = 16 // that the bound of the whole grows by
	maxTrip    = time.Second
)

type tripKey struct{}

// farther returns how long something may take that takes d at most where the way is short.
func farther(ctx context.Context, d time.Duration) time.Duration {
	trip, _ := ctx.Value(tripKey{}).(time.Duration)
	return d + tripsEach*trip
}

// bounded is context.WithTimeout of farther.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, farther(ctx, d))
}

// longTimeout returns a context that knows how long the way to the broker is, by what was seen until
// now, and ends when the whole look is to be over.
func (l *looker) longTimeout(life context.Context) (context.Context, context.CancelFunc) {
	trip := l.o.roundTrip()
	return context.WithDeadline(context.WithValue(life, tripKey{}, trip), l.o.Start.Add(wholeBound+tripsWhole*trip))
}

// roundTrip is the round trip to the broker, as far as it is known: a TLS handshake takes three
// with what is said before it, and a question that a gateway passes on takes one.
func (o *Observations) roundTrip() (trip time.Duration) { // not of a copy: others write what it does not read
	for _, s := range o.Services {
		if s.Connect.Outcome == Connected {
			trip = max(trip, s.Connect.Took)
		}
		if s.TLS.Done {
			trip = max(trip, s.TLS.Took/3)
		}
	}
	if s := o.Session; s.Bearings {
		trip = max(trip, s.Got.Sub(s.Sent))
	}
	return min(trip, maxTrip)
}
