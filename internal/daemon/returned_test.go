package daemon

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A returned connection that has ended on the way is passed over: those after it arrive.
func TestReturnedConnectionThatHasEnded(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kin [2]*net.UnixConn
	for i := range kin {
		if kin[i], err = unixConn(os.NewFile(uintptr(fds[i]), "kin")); err != nil {
			t.Fatal(err)
		}
		defer kin[i].Close()
	}
	old := &Hooks{letGo: make(chan struct{}), returned: make(chan Returned)}
	close(old.letGo)
	over := make(chan struct{})
	go func() {
		defer close(over)
		old.serveReturns(t.Context(), &successor{kin: kin[0]})
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	young := &Hooks{inherited: &inheritance{kin: kin[1]}}
	for _, reset := range []bool{true, false} {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if reset {
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			c.Read(make([]byte, 1)) // until it has arrived
		}
		if err := young.Return(c.(*net.TCPConn), []byte("first")); err != nil {
			t.Fatal(err)
		}
		if reset {
			continue
		}
		r := <-old.Returned()
		if got := r.Conn.RemoteAddr().String(); got != client.LocalAddr().String() || string(r.First) != "first" {
			t.Errorf("%s, %q", got, r.First)
		}
		r.Conn.Close()
	}
	kin[1].Close()
	<-over
}
