package runner

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Traffic is a stream of bytes at full speed from one end of a connection to the other.
type Traffic struct {
	from, to net.Conn
	got      atomic.Uint64 // bytes
	moving   sync.WaitGroup
	ends     [2]error // of the goroutine that writes, and of the one that reads; theirs until moving is over
}

// Pump starts the traffic. It owns both ends from then on, and moves so many bytes by a call.
func Pump(from, to net.Conn, block int) *Traffic {
	t := &Traffic{from: from, to: to}
	t.moving.Go(func() {
		buf := make([]byte, block)
		for t.ends[0] == nil {
			_, t.ends[0] = from.Write(buf)
		}
	})
	t.moving.Go(func() {
		buf := make([]byte, block)
		for t.ends[1] == nil {
			var n int
			n, t.ends[1] = to.Read(buf)
			t.got.Add(uint64(n))
		}
	})
	return t
}

// Got returns how many bytes have arrived.
func (t *Traffic) Got() uint64 { return t.got.Load() }

// End ends the traffic, and returns the error that ended it before.
func (t *Traffic) End() (err error) {
	t.from.Close()
	t.to.Close()
	t.moving.Wait()
	for _, end := range t.ends {
		if !errors.Is(end, net.ErrClosed) && !errors.Is(end, io.EOF) && !errors.Is(end, syscall.ECONNRESET) && !errors.Is(end, syscall.EPIPE) {
			err = errors.Join(err, end)
		}
	}
	return err
}

// Mbit returns the Mbit/s of so many bytes in a time.
func Mbit(bytes uint64, in time.Duration) float64 { return float64(bytes) * 8 / 1e6 / in.Seconds() }
