package punch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// bridgeBuffer is the size of one direction's buffer: several dozen packets, so that a system call
// moves more than one of them.
const bridgeBuffer = 256 << 10

// closeWriter is a connection that can be half-closed.
type closeWriter interface{ CloseWrite() error }

// Bridge copies between a stream and a local connection, usually one end of a Unix socket pair
// whose other end a process has, until both directions have ended. Both must have CloseWrite. An
// end of stream on one side becomes one on the other while the opposite direction continues.
//
// It closes both before it returns, and returns nil when both directions ended regularly. Otherwise
// it returns the cause, which may be that of ctx; a *Conn is aborted, and a TCP connection, or the
// one under TLS, is reset, so that the peer does not mistake a truncated stream for a complete one.
// A Unix socket has no reset: there the process reads an end of stream and must detect by itself,
// as TLS and links do, that more should have arrived.
func Bridge(ctx context.Context, stream, local net.Conn) error {
	for _, c := range []net.Conn{stream, local} {
		if _, ok := c.(closeWriter); !ok {
			stream.Close()
			local.Close()
			return fmt.Errorf("punch.Bridge: a %T cannot be closed for writing only", c)
		}
	}
	outer := ctx
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	var broken sync.WaitGroup
	broken.Add(1)
	unwatch := context.AfterFunc(ctx, func() {
		defer broken.Done()
		abort(stream)
		local.Close()
	})
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(local, stream, "from the peer", fail) })
	pumps.Go(func() { pump(stream, local, "from the process", fail) })
	pumps.Wait()
	if !unwatch() {
		broken.Wait()
		if outer.Err() != nil { // the peer, ended by the same cause, may have ended the stream earlier
			ctx = outer
		}
		return fmt.Errorf("punch.Bridge: %w", context.Cause(ctx))
	}
	return errors.Join(stream.Close(), local.Close())
}

// pump copies src to dst until the end of src, which it passes on.
func pump(dst, src net.Conn, direction string, fail func(error)) {
	// The plain interfaces keep io.Copy from bypassing the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, bridgeBuffer))
	if err == nil {
		err = dst.(closeWriter).CloseWrite()
	}
	if err != nil {
		fail(fmt.Errorf("%s: %w", direction, err))
	}
}

func abort(c net.Conn) {
	if c, ok := c.(*Conn); ok {
		c.Abort()
		return
	}
	carrier.Reset(c)
}
