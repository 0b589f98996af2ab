package doctor

import (
	"context"
	"time"
)

// A long path is not a fault. A bounded step may take some round trips longer than the bound, as
// many as TCP, TLS and a request need, or a lost packet of them.
const (
	tripsEach  = 4  // added to each bound
	tripsWhole = 16 // added to the bound of the whole run
	maxTrip    = 2 * time.Second
)

type tripKey struct{}

// boundFor returns the bound for a step that takes at most d on a short path.
func boundFor(ctx context.Context, d time.Duration) time.Duration {
	trip, _ := ctx.Value(tripKey{}).(time.Duration)
	return d + tripsEach*trip
}

// farther returns a context for steps over a path whose round trip takes at least trip.
func farther(ctx context.Context, trip time.Duration) context.Context {
	if known, _ := ctx.Value(tripKey{}).(time.Duration); known >= trip {
		return ctx
	}
	return context.WithValue(ctx, tripKey{}, min(trip, maxTrip))
}

// bounded is context.WithTimeout with boundFor.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, boundFor(ctx, d))
}

// longTimeout returns a context with the round trip to the broker as measured so far, which ends
// when the whole run must be over.
func (l *looker) longTimeout(life context.Context) (context.Context, context.CancelFunc) {
	trip := l.o.roundTrip()
	return context.WithDeadline(context.WithValue(life, tripKey{}, trip), l.o.Start.Add(wholeBound+tripsWhole*trip))
}

// roundTrip returns the round trip to the broker, as far as known: a TLS handshake with its
// preceding messages takes three, and a request that a gateway forwards takes one.
func (o *Observations) roundTrip() (trip time.Duration) { // not of a copy: other goroutines write fields that it does not read
	for _, s := range o.Services {
		if s.Connect.Outcome == Connected {
			trip = max(trip, s.Connect.Took)
		}
		if s.TLS.Done {
			trip = max(trip, s.TLS.Took/3)
		}
	}
	if s := o.Session; s.Listed {
		trip = max(trip, s.Got.Sub(s.Sent))
	}
	return min(trip, maxTrip)
}
