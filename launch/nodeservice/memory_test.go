package nodeservice

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// At the local socket, requests that would take much more memory than they have bytes are refused
// before they are decoded, and so are answers by the program that asked.
func TestMemoryAtTheLocalSocket(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "helper")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: helper + DoorSuffix, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	g := &Server{callers: newCallers(9, 9), NodeService: &NodeService{}}
	g.meter = g.newLocalMeter()
	g.local = g.newLocalServer()
	nodepb.RegisterNodeServiceServer(control.Counted(g.local), nodepb.UnimplementedNodeServiceServer{})
	answer := &nodepb.HostsResponse{}
	nodepb.RegisterSubmittersServer(control.Counted(g.local), &hostsServer{hosts: func(context.Context, *nodepb.HostsRequest) (*nodepb.HostsResponse, error) {
		return answer, nil
	}})
	served := make(chan struct{})
	go func() {
		g.local.Serve(&localListener{ln, g})
		close(served)
	}()
	t.Cleanup(func() { g.local.Stop(); <-served })
	conn, err := Connect(helper)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })

	request := &nodepb.MeasureRequest{}
	_, err = nodepb.NewNodeServiceClient(conn).Measure(t.Context(), request)
	if err := control.FromStatus(err); errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("a small request: %v", err)
	}
	request.ProtoReflect().SetUnknown(bytes.Repeat([]byte{10, 0}, 30_000))
	_, err = nodepb.NewNodeServiceClient(conn).Measure(t.Context(), request)
	if err := control.FromStatus(err); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("a request of 30,000 empty names: %v", err)
	}
	if _, err := nodepb.NewSubmittersClient(conn).Hosts(t.Context(), &nodepb.HostsRequest{}); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	answer.ProtoReflect().SetUnknown(bytes.Repeat([]byte{10, 0}, 1_000_000))
	if r, err := nodepb.NewSubmittersClient(conn).Hosts(t.Context(), &nodepb.HostsRequest{}); err == nil {
		t.Errorf("an answer of a million empty hosts is taken, as %d", len(r.Hosts))
	}
}

// A list of reservations has the beginnings of long arguments.
func TestListedArguments(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), maxListedArgs))
	for _, c := range []struct {
		argv []string
		left int
		want int // arguments, with the dots in place of others
	}{
		{[]string{"a", "b"}, 100, 2}, {[]string{"a", long}, 1 << 20, 2}, {[]string{long, "b"}, 1 << 20, 1}, {[]string{"a", "b"}, 7, 2},
		{[]string{"a", "b", "c"}, 7, 2}, {[]string{"a"}, 0, 1}, {nil, 0, 0},
	} {
		got, size := listedArgs(c.argv, c.left)
		if len(got) != c.want || size > c.left || size > maxListedArgs {
			t.Errorf("%d arguments, %d bytes left: %d, of %d bytes", len(c.argv), c.left, len(got), size)
		}
	}
}
