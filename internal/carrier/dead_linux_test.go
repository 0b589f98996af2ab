package carrier

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/overlay"
)

// stuck runs a joint with a fast pulse, of which the left side sent as much as fits while the right
// does not read.
func stuck(t *testing.T) (left, right *net.TCPConn, sent int, result chan error) {
	t.Helper()
	left, a := pair(t)
	right, b := pair(t)
	j := newJoint(a, b, Options{Meter: new(Meter)})
	j.pulse = 10 * time.Millisecond
	result = make(chan error, 1)
	go func() { result <- j.run(context.Background()) }()
	right.CloseWrite()
	if _, err := left.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<20); ; {
		left.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := left.Write(buf)
		sent += n
		if err != nil {
			return left, right, sent, result // full
		}
	}
}

func ended(t *testing.T, result chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the join did not end")
		panic("unreachable")
	}
}

// The sender ends with a reset, while its bytes wait for a reader that does not read: neither flow
// touches the sender's socket, and yet the join ends.
func TestResetBehindAStuckReader(t *testing.T) {
	left, _, _, result := stuck(t)
	left.SetLinger(0)
	left.Close()
	if err := ended(t, result); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the join ended with %v", err)
	}
}

// The sender closed regularly, so its socket is closed too; the reader still gets everything.
func TestProperEndBehindAStuckReader(t *testing.T) {
	left, right, sent, result := stuck(t)
	left.Close()
	select {
	case err := <-result:
		t.Fatalf("the join ended with %v while bytes were on their way", err)
	case <-time.After(200 * time.Millisecond): // twenty pulses
	}
	if n, err := io.Copy(io.Discard, right); err != nil || n != int64(sent) {
		t.Errorf("%d of %d bytes arrived, %v", n, sent, err)
	}
	if err := ended(t, result); err != nil {
		t.Error(err)
	}
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		info  unix.TCPInfo
		err   unix.Errno
		class error
	}{
		"established":               {unix.TCPInfo{State: 1}, 0, nil},
		"the peer half-closed":      {unix.TCPInfo{State: 8}, 0, nil},
		"a few repetitions":         {unix.TCPInfo{State: 1, Retransmits: maxRetransmits - 1}, 0, nil},
		"a peer that does not read": {unix.TCPInfo{State: 1, Probes: 20}, 0, nil},
		"closed properly":           {unix.TCPInfo{State: tcpClose}, 0, nil},
		"reset":                     {unix.TCPInfo{State: tcpClose}, unix.ECONNRESET, unix.ECONNRESET},
		"silent":                    {unix.TCPInfo{State: 1, Retransmits: maxRetransmits}, 0, overlay.ErrTimeout},
	} {
		if err := verdict(&tc.info, tc.err); !errors.Is(err, tc.class) || (err == nil) != (tc.class == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.class)
		}
	}
}

// A socket whose two directions ended regularly is closed, but not dead.
func TestProperlyClosedIsNotDead(t *testing.T) {
	c, peer := pair(t)
	c.CloseWrite() // first, so that c ends in TIME_WAIT, which its socket shows as closed
	if _, err := io.Copy(io.Discard, peer); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	if err := dead(c); err != nil {
		t.Errorf("dead = %v", err)
	}
}
