package gateway

import (
	"io"
	"net"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
)

// nodeEnd is a node's end of a link whose other end is not a kernel socket. It counts the bytes. If
// it is closed before both directions have ended, it resets the connection, so that the process
// does not mistake a cut stream for a complete one.
type nodeEnd struct {
	*net.TCPConn
	throttle           *ratelimit.Throttle // limits it to the quota; nil for no limit
	out, in            atomic.Uint64       // bytes from the node, and to it
	ended, closedWrite atomic.Bool         // the directions
}

// Read reads what leaves the site.
func (e *nodeEnd) Read(b []byte) (int, error) {
	n, err := e.TCPConn.Read(b)
	if !e.pay(0, n) {
		return 0, net.ErrClosed
	}
	e.out.Add(uint64(n))
	if err == io.EOF {
		e.ended.Store(true)
	}
	return n, err
}

// Write writes what arrived from outside.
func (e *nodeEnd) Write(b []byte) (int, error) {
	if !e.pay(1, len(b)) {
		return 0, net.ErrClosed
	}
	n, err := e.TCPConn.Write(b)
	e.in.Add(uint64(n))
	return n, err
}

// pay waits until n bytes may pass, and reports whether they may; they may not after Close.
func (e *nodeEnd) pay(dir, n int) bool { return e.throttle == nil || e.throttle.Pay(dir, n) }

// CloseWrite ends the direction to the node.
func (e *nodeEnd) CloseWrite() error {
	err := e.TCPConn.CloseWrite()
	if err == nil {
		e.closedWrite.Store(true)
	}
	return err
}

// Close closes the connection, with a reset if that cuts it.
func (e *nodeEnd) Close() error {
	if e.throttle != nil {
		e.throttle.Stop()
	}
	if !e.ended.Load() || !e.closedWrite.Load() {
		e.SetLinger(0)
	}
	return e.TCPConn.Close()
}

// Stats returns the counts so far.
func (e *nodeEnd) Stats() carrier.Stats {
	out, in := e.out.Load(), e.in.Load()
	return carrier.Stats{AToB: out, BToA: in, Copied: out + in}
}
