package carrier

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A connection that was reset on the way to another process, or before anyone took it, is an error: it has no remote address.
func TestFromFileOfAResetConnection(t *testing.T) {
	for _, reset := range []bool{false, true} {
		near, far := pair(t)
		f, err := near.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if reset {
			Reset(far)
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
		}
		c, err := FromFile(f)
		switch {
		case reset:
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reset: %v, %v", c, err)
			}
		case err != nil:
			t.Error(err)
		default:
			if a, ok := c.RemoteAddr().(*net.TCPAddr); !ok || a.String() != far.LocalAddr().String() {
				t.Errorf("from %v", c.RemoteAddr())
			}
			c.Close()
		}
	}
}
