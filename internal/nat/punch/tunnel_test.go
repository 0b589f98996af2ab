package punch

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func newToken() (t Token) {
	rand.Read(t[:])
	return t
}

// reopen opens another stream of the tunnel that a and b are streams of.
func reopen(ctx context.Context, a, b *Conn) (*Conn, *Conn, error) {
	token := newToken()
	o, err := a.Tunnel().Open(token)
	if err != nil {
		return nil, nil, err
	}
	cb, err := b.Tunnel().Accept(ctx, token)
	if err != nil {
		o.Abort()
		return nil, nil, err
	}
	ca, err := o.Await(ctx)
	if err != nil {
		cb.Abort()
	}
	return ca, cb, err
}

func mustReopen(t testing.TB, a, b *Conn) (*Conn, *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ca, cb, err := reopen(ctx, a, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ca.Abort)
	t.Cleanup(cb.Abort)
	return ca, cb
}

// ended waits until a tunnel has ended.
func ended(t testing.TB, tunnels ...*Tunnel) {
	t.Helper()
	for _, tunnel := range tunnels {
		select {
		case <-tunnel.Done():
		case <-time.After(patience):
			t.Fatalf("the tunnel to %v is still there after %v", tunnel.quic.RemoteAddr(), patience)
		}
	}
}

// alive fails the test when a tunnel has ended.
func alive(t testing.TB, tunnels ...*Tunnel) {
	t.Helper()
	for _, tunnel := range tunnels {
		if err := context.Cause(tunnel.quic.Context()); err != nil {
			t.Fatalf("the tunnel to %v has ended: %v", tunnel.quic.RemoteAddr(), err)
		}
	}
}

// Streams of both ends, opened and closed concurrently, lose nothing and get nothing of each other,
// and the tunnel outlives all but the last.
func TestStreams(t *testing.T) {
	a, b := connected(t)
	if a.Tunnel().ID() != b.Tunnel().ID() || a.Tunnel().ID() == [TokenLen]byte{} {
		t.Errorf("the ends name the tunnel %x and %x", a.Tunnel().ID(), b.Tunnel().ID())
	}
	const streams, rounds = 8, 3
	var all sync.WaitGroup
	var marked atomic.Int32
	for i := range streams {
		all.Go(func() {
			from, to := a, b
			if i%2 == 1 {
				from, to = b, a
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			for range rounds {
				ca, cb, err := reopen(ctx, from, to)
				if err == nil {
					err = exchange(ca, cb, 50_000+i)
				}
				if err == nil {
					err = deliver(ca, cb)
				}
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				for _, c := range []*Conn{ca, cb} {
					select {
					case <-c.marked:
						marked.Add(1)
					default: // Close waited long enough
					}
				}
			}
		})
	}
	all.Wait()
	if marked.Load() == 0 {
		t.Error("no Close waited for its peer, or none was told")
	}
	alive(t, a.Tunnel(), b.Tunnel())
	if err := exchange(a, b, 1<<20); err != nil {
		t.Errorf("the first stream: %v", err)
	}
	if !a.Tunnel().RTT().IsMeasured() || !b.Tunnel().RTT().IsMeasured() {
		t.Errorf("round trips of %v and %v", a.Tunnel().RTT(), b.Tunnel().RTT())
	}
	closeBoth(t, a, b)
	ended(t, a.Tunnel(), b.Tunnel())
}

// deliver closes two ends at once.
func deliver(a, b *Conn) error {
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, c := range []*Conn{a, b} {
		both.Go(func() { errs[i] = c.Close() })
	}
	both.Wait()
	return errors.Join(errs...)
}

// What was written before Close arrives although the tunnel ends with it, for several streams that
// end at once and with a reader that starts late.
func TestCloseOfLastStreamsDeliversAll(t *testing.T) {
	a, b := connected(t)
	pairs := [][2]*Conn{{a, b}}
	for range 5 {
		ca, cb := mustReopen(t, a, b)
		pairs = append(pairs, [2]*Conn{ca, cb})
	}
	var writers, readers, written sync.WaitGroup
	written.Add(len(pairs))
	for i, p := range pairs {
		sent := make([]byte, 256<<10+i)
		rand.Read(sent)
		writers.Go(func() {
			_, err := p[0].Write(sent)
			written.Done()
			if err = errors.Join(err, p[0].Close()); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
		readers.Go(func() {
			written.Wait() // the windows hold all of it
			got, err := io.ReadAll(p[1])
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("reader %d got %d bytes of %d, %v", i, len(got), len(sent), err)
			}
			p[1].Close()
		})
	}
	writers.Wait()
	readers.Wait()
	ended(t, a.Tunnel(), b.Tunnel())
}

// One direction of one stream ends early; nothing else does.
func TestHalfCloseOfOneStream(t *testing.T) {
	a, b := connected(t)
	ca, cb := mustReopen(t, b, a)
	if err := ca.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	cb.SetDeadline(time.Now().Add(patience))
	if n, err := cb.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("the end of stream came as %d, %v", n, err)
	}
	if err := exchange(a, b, 500_000); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	go func() {
		cb.Write(make([]byte, 500_000))
		cb.Close()
	}()
	ca.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(ca); err != nil || len(got) != 500_000 {
		t.Errorf("the open direction carried %d bytes, %v", len(got), err)
	}
}

// An aborted stream is not a complete one, and the others are not affected.
func TestAbortOfOneStream(t *testing.T) {
	a, b := connected(t)
	ca, cb := mustReopen(t, a, b)
	if _, err := ca.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	ca.Abort()
	cb.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(cb); !isGone(err) {
		t.Errorf("Read after the peer's Abort: %v", err)
	}
	if err := exchange(a, b, 100_000); err != nil {
		t.Errorf("the other stream: %v", err)
	}
}

// Abort ends a Close that waits for a peer that does not read.
func TestAbortDuringClose(t *testing.T) {
	a, b := connected(t)
	ca, _ := mustReopen(t, a, b)
	if _, err := ca.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		ca.Close()
		close(closed)
	}()
	<-ca.closed
	ca.Abort()
	select {
	case <-closed:
	case <-ca.marked:
		t.Error("the peer read what nobody read")
	case <-time.After(patience):
		t.Error("Close has not returned")
	}
	alive(t, a.Tunnel())
}

// An unread stream fills only its own window.
func TestUnreadStreamHoldsNobodyUp(t *testing.T) {
	a, b := connected(t)
	for range 2 {
		ca, _ := mustReopen(t, a, b)
		ca.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := ca.Write(make([]byte, 2*maxWindow)); err == nil {
			t.Fatalf("wrote %d bytes, %v: the window should be full", n, err)
		}
	}
	if err := exchange(a, b, 2<<20); err != nil {
		t.Errorf("the stream that is read: %v", err)
	}
}

// A kept tunnel outlives its streams, and ends when its time is over.
func TestKeep(t *testing.T) {
	a, b := connected(t)
	for _, c := range []*Conn{a, b} {
		c.Tunnel().Keep(time.Hour)
	}
	closeBoth(t, a, b)
	alive(t, a.Tunnel(), b.Tunnel())
	ca, cb := mustReopen(t, b, a)
	if err := exchange(ca, cb, 100_000); err != nil {
		t.Fatal(err)
	}
	ca.Tunnel().Keep(time.Millisecond) // has no effect while ca is open
	if err := deliver(ca, cb); err != nil {
		t.Error(err)
	}
	ended(t, a.Tunnel(), b.Tunnel()) // a's, because the peer has ended it
	for _, c := range []*Conn{a, b} {
		if _, err := c.Tunnel().Open(newToken()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Open in a tunnel that has ended: %v", err)
		}
		if _, err := c.Tunnel().Accept(context.Background(), newToken()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept in a tunnel that has ended: %v", err)
		}
	}
}

// Keep(0) ends a tunnel without streams at once, one with streams after them.
func TestKeepNoMore(t *testing.T) {
	a, b := connected(t)
	a.Tunnel().Keep(time.Hour)
	b.Tunnel().Keep(time.Hour)
	closeBoth(t, a, b)
	alive(t, a.Tunnel())
	ca, cb := mustReopen(t, a, b)
	a.Tunnel().Keep(0)
	if err := exchange(ca, cb, 100_000); err != nil {
		t.Errorf("a stream of a tunnel that is not kept any more: %v", err)
	}
	if err := deliver(ca, cb); err != nil {
		t.Error(err)
	}
	ended(t, a.Tunnel(), b.Tunnel())
}

func TestTokens(t *testing.T) {
	a, b := connected(t)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	long, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	right, wrong := newToken(), newToken()
	o, err := a.Tunnel().Open(right)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Tunnel().Accept(short(), wrong); !errors.Is(err, overlay.ErrTimeout) {
		t.Errorf("accepted a token that nobody showed: %v", err)
	}
	if _, err := o.Await(short()); !errors.Is(err, overlay.ErrTimeout) {
		t.Errorf("welcomed with a token that nobody waited for: %v", err)
	}

	// The first waiter gets it as well, and a second one does not.
	token := newToken()
	got := make(chan *Conn, 1)
	go func() {
		c, err := b.Tunnel().Accept(long, token)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	settle(t, "missing waiters", 0, func() int {
		b.Tunnel().mu.Lock()
		defer b.Tunnel().mu.Unlock()
		return 1 - len(b.Tunnel().awaited)
	})
	if _, err := b.Tunnel().Accept(short(), token); !errors.Is(err, overlay.ErrRefused) {
		t.Errorf("two wait for the same token: %v", err)
	}
	if o, err = a.Tunnel().Open(token); err != nil {
		t.Fatal(err)
	}
	ca, err := o.Await(long)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(ca, <-got, 1000); err != nil {
		t.Error(err)
	}
}

// Few streams wait for an Accept, and further ones are refused at once.
func TestUnacceptedStreamsAreFew(t *testing.T) {
	a, b := connected(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var openings []*Opening
	for range maxArrived {
		o, err := a.Tunnel().Open(newToken())
		if err != nil {
			t.Fatal(err)
		}
		openings = append(openings, o)
	}
	settle(t, "missing streams", 0, func() int {
		b.Tunnel().mu.Lock()
		defer b.Tunnel().mu.Unlock()
		return maxArrived - len(b.Tunnel().arrived)
	})
	o, err := a.Tunnel().Open(newToken())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Await(ctx); err == nil || errors.Is(err, overlay.ErrTimeout) {
		t.Errorf("one stream too many: %v", err)
	}
	b.Tunnel().mu.Lock()
	if n := len(b.Tunnel().arrived); n != maxArrived {
		t.Errorf("%d streams wait to be accepted, want %d", n, maxArrived)
	}
	b.Tunnel().mu.Unlock()
	b.Tunnel().mu.Lock()
	for _, a := range b.Tunnel().arrived {
		a.life.Reset(0) // arrivedLife is over
	}
	b.Tunnel().mu.Unlock()
	for i, o := range openings {
		if _, err := o.Await(ctx); err == nil || errors.Is(err, overlay.ErrTimeout) {
			t.Errorf("stream %d that nobody accepted: %v", i, err)
		}
	}
	if err := exchange(a, b, 1000); err != nil {
		t.Error(err)
	}
}

// A stream with a wrong beginning is refused and does no harm.
func TestBadBeginnings(t *testing.T) {
	a, b := connected(t)
	for name, head := range map[string][]byte{
		"nothing":         {},
		"a cut token":     {opened, 1, 2, 3},
		"another purpose": append([]byte{welcome}, make([]byte, TokenLen)...),
	} {
		s, err := a.Tunnel().quic.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write(head)
		s.Close()
		s.SetReadDeadline(time.Now().Add(patience))
		if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	// Marks of no stream, and malformed marks.
	for _, mark := range [][]byte{{}, {1}, bytes.Repeat([]byte{0xff}, 8), make([]byte, 100)} {
		s, err := a.Tunnel().quic.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write(mark)
		s.Close()
	}
	ca, cb := mustReopen(t, a, b)
	if err := exchange(ca, cb, 1000); err != nil {
		t.Error(err)
	}
}

// The number of streams is limited, and each that ends makes room.
func TestTooManyStreams(t *testing.T) {
	a, b := connected(t)
	var last [2]*Conn
	for range maxStreams - 1 { // a's first one counts
		last[0], last[1] = mustReopen(t, a, b)
	}
	if _, err := a.Tunnel().Open(newToken()); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("Open of one stream too many: %v", err)
	}
	if err := deliver(last[0], last[1]); err != nil {
		t.Error(err)
	}
	var o *Opening
	settle(t, "refusals", 0, func() int { // the room comes with the next packet
		var err error
		if o, err = a.Tunnel().Open(newToken()); err != nil {
			return 1
		}
		return 0
	})
	o.Abort()
}

// Await detects a dead path, within the caller's bound.
func TestDeadPath(t *testing.T) {
	a, b := connected(t)
	// Only the socket is closed; the peer is not notified.
	b.Tunnel().release()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	o, err := a.Tunnel().Open(newToken())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Await(ctx); !errors.Is(err, overlay.ErrTimeout) {
		t.Errorf("Await on a dead path: %v", err)
	}
}

// A tunnel that dies ends its streams and pending calls with an error.
func TestDeathOfTunnel(t *testing.T) {
	a, b := connected(t)
	a.Tunnel().Keep(time.Hour)
	b.Tunnel().Keep(time.Hour)
	ca, cb := mustReopen(t, a, b)
	errs := make(chan error, 4)
	for _, c := range []*Conn{a, ca} {
		go func() {
			_, err := c.Read(make([]byte, 1))
			errs <- err
		}()
	}
	go func() {
		_, err := a.Tunnel().Accept(context.Background(), newToken())
		errs <- err
	}()
	o, err := a.Tunnel().Open(newToken())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := o.Await(context.Background())
		errs <- err
	}()
	b.Tunnel().quic.CloseWithError(codeAbort, "")
	for range 4 {
		select {
		case err := <-errs:
			if err == nil || err == io.EOF {
				t.Errorf("after the tunnel's death: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("somebody still waits")
		}
	}
	for _, c := range []*Conn{a, b, ca, cb} {
		c.Close()
	}
}
