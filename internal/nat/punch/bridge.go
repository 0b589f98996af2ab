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

// bridgeBuffer is the size of one direction's buffer: some dozens of packets,
// so that a system call moves more than one of them.
const bridgeBuffer = 256 << 10

// closeWriter is half of a connection's end.
type closeWriter interface{ CloseWrite() error }

// Bridge copies between a stream and a local connection, usually one end of a
// pair of Unix sockets whose other end a process has, until both directions have
// ended. Both must have CloseWrite. An end of stream on one side becomes one on
// the other while the opposite direction goes on.
//
// It closes both before it returns, and returns nil when both directions ended
// properly. Otherwise it says what ended it, the cause of ctx among these, and
// a *Conn is aborted, and a TCP connection, or the one under TLS, reset, so that nobody takes a cut
// stream for a whole one. A Unix socket knows no reset: there the process reads
// an end of stream and has to know by itself, as TLS and links do, that more
// should have come.
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
		if outer.Err() != nil { // the peer, told the same, may have been quicker to end the stream
			ctx = outer
		}
		return fmt.Errorf("punch.Bridge: %w", context.Cause(ctx))
	}
	return errors.Join(stream.Close(), local.Close())
}

// pump copies src to dst until the end of src, which it passes on.
func pump(dst, src net.Conn, direction string, fail func(error)) {
	// The plain interfaces keep io.Copy from leaving out the buffer.
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
