package nodeservice

import (
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// An account may have a bounded number of connections at the local socket, and the remaining descriptors
// are for others. A closed connection makes room.
func TestLocalListener(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"}
	ln, err := net.ListenUnix("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := &localListener{ln, &Server{callers: newCallers(9, 2), meter: new(Server).newLocalMeter()}}
	accepted := make(chan net.Conn, 9)
	go func() { // ends with the listener
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.DialUnix("unix", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := testkit.Receive(t, "a connection", accepted)
	dial()
	testkit.Receive(t, "a second", accepted)
	if _, err := dial().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the third: %v", err)
	}
	first.Close()
	first.Close() // as gRPC may
	dial()
	testkit.Receive(t, "another after one has left", accepted)
	if s := d.g.callers.Stats(); s.Used != 2 || s.KeyRefused != 1 {
		t.Errorf("%+v", s)
	}
}

// A node that may run more jobs here may have more calls in flight.
func TestBudgetOfANode(t *testing.T) {
	var b Bounds
	if none, some := b.budget(0), b.budget(100); none.Calls != callsBesides || some.Calls != callsBesides+200 || none.Streams == 0 {
		t.Errorf("%+v, %+v", none, some)
	}
}
