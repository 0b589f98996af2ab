package control

import (
	"errors"
	"net"
	"os"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestWithoutAddress(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}, Err: os.ErrPermission}
	err := WithoutAddress(refused, "127.0.0.1:9")
	if err.Error() != os.ErrPermission.Error() {
		t.Errorf("got %v", err)
	}
	if op := (*net.OpError)(nil); !errors.As(err, &op) || !errors.Is(err, os.ErrPermission) {
		t.Error("it is another error now")
	}
	if other := WithoutAddress(refused, "127.0.0.1:8"); other != error(refused) {
		t.Errorf("of another address: %v", other)
	}
}

func TestCauseOfTransport(t *testing.T) {
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial unix /a: connect: refused"`: "unreachable: dial unix /a: connect: refused",
		`connection error: desc = "error reading server preface: EOF"`:                              "unreachable: error reading server preface: EOF",
		"the peer's own words": "unreachable: the peer's own words",
	} {
		if err := FromStatus(status.Error(codes.Unavailable, message)); err.Error() != want || !errors.Is(err, overlay.ErrUnreachable) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
