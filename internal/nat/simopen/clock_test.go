package simopen

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// ask simulates a question at the local time at: the server is ahead by offset.
func ask(at time.Time, offset, there, back time.Duration) Sample {
	return Sample{Sent: at, Server: at.Add(there).Add(offset), Received: at.Add(there + back)}
}

const ms = time.Millisecond

func TestClockTakesTheShortestRoundTrip(t *testing.T) {
	var c Clock
	if _, ok := c.Estimate(epoch); ok {
		t.Error("an estimate without a sample")
	}
	c.Add(ask(epoch, 700*ms, 10*ms, 90*ms)) // a queue on the way back: an error of 40 ms
	c.Add(ask(epoch.Add(time.Second), 700*ms, 11*ms, 9*ms))
	c.Add(ask(epoch.Add(2*time.Second), 700*ms, 50*ms, 10*ms))
	e, ok := c.Estimate(epoch.Add(2 * time.Second))
	if !ok || e.Offset != 701*ms || e.RTT != 20*ms || e.Error < 10*ms || e.Error > 11*ms {
		t.Errorf("%+v, %v", e, ok)
	}
	if got := e.Local(e.Server(epoch)); !got.Equal(epoch) {
		t.Errorf("there and back: %v", got)
	}
}

func TestClockDistrustsOldSamples(t *testing.T) {
	var c Clock
	c.Add(ask(epoch, 0, 10*ms, 10*ms))
	c.Add(ask(epoch.Add(10*time.Minute), 50*ms, 12*ms, 12*ms)) // 60 ms of drift would be allowed by now
	e, _ := c.Estimate(epoch.Add(10 * time.Minute))
	if e.Offset != 50*ms || e.RTT != 20*ms {
		t.Errorf("%+v", e)
	}
}

func TestClockIgnoresASampleThatEndsBeforeItBegan(t *testing.T) {
	var c Clock
	c.Add(ask(epoch, time.Hour, 10*ms, -30*ms))
	if e, ok := c.Estimate(epoch); ok {
		t.Errorf("%+v", e)
	}
}

// The truth is within the estimate's error, whatever the paths did, and the memory stays bounded.
func TestClockErrorIsABound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var c Clock
		offset := time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
		at := epoch
		for range 1 + r.IntN(100) {
			at = at.Add(time.Duration(r.Int64N(int64(time.Second))))
			c.Add(ask(at, offset, time.Duration(r.Int64N(int64(50*ms))), time.Duration(r.Int64N(int64(50*ms)))))
		}
		e, ok := c.Estimate(at)
		if wrong := (e.Offset - offset).Abs(); !ok || wrong > e.Error {
			t.Fatalf("offset %v, estimated as %+v", offset, e)
		}
		if len(c.samples) > maxSamples {
			t.Fatalf("%d samples kept", len(c.samples))
		}
	}
}
