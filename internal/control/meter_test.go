package control_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// taker is a server of streams whose messages it reads, or never does.
type taker struct {
	meter   *control.Meter
	refused chan string
	conns   chan net.Conn
	done    chan struct{}
}

func newTaker(t *testing.T, b control.Budget) *taker {
	k := &taker{refused: make(chan string, 1000), conns: make(chan net.Conn), done: make(chan struct{})}
	k.meter = control.NewMeter(b, "the server", control.MeterNames{Calls: "all_calls", CallsPerKey: "calls", Bytes: "all_bytes", BytesPerKey: "bytes"},
		func(who string, err error) { k.refused <- who + ": " + err.Error() })
	s := grpc.NewServer(append(k.meter.ServerOptions(), grpc.Creds(takerCredentials{}), grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(1<<20))...)
	stream := func(h func(grpc.ServerStream) error) grpc.StreamHandler {
		return func(_ any, ss grpc.ServerStream) error { return h(ss) }
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "t", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Read", ClientStreams: true, ServerStreams: true, Handler: stream(func(ss grpc.ServerStream) error {
			for {
				if err := ss.RecvMsg(new(controlpb.StatusResponse)); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := ss.SendMsg(new(emptypb.Empty)); err != nil {
					return err
				}
			}
		})},
		{StreamName: "Ignore", ClientStreams: true, ServerStreams: true, Handler: stream(func(ss grpc.ServerStream) error {
			<-ss.Context().Done()
			return nil
		})},
	}}, nil)
	served := make(chan struct{})
	go func() {
		s.Serve(k)
		close(served)
	}()
	t.Cleanup(func() { close(k.done); s.Stop(); <-served })
	return k
}

func (k *taker) Accept() (net.Conn, error) {
	select {
	case c := <-k.conns:
		return c, nil
	case <-k.done:
		return nil, net.ErrClosed
	}
}
func (k *taker) Close() error   { return nil }
func (k *taker) Addr() net.Addr { return &net.UnixAddr{} }

// dial returns a connection of who.
func (k *taker) dial(t *testing.T, who string) *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			k.conns <- k.meter.Conn(far, who)
			return near, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (k *taker) used() (bytes int) {
	for _, l := range k.meter.Limits() {
		if l.Name == "all_bytes" {
			bytes = l.Used
		}
	}
	return bytes
}

type takerInfo struct {
	credentials.CommonAuthInfo
	control.Metered
}

func (takerInfo) AuthType() string { return "test" }

type takerCredentials struct {
	credentials.TransportCredentials
}

func (takerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, takerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, c.(control.Metered)}, nil
}
func (c takerCredentials) Clone() credentials.TransportCredentials { return c }
func (takerCredentials) Info() credentials.ProtocolInfo            { return credentials.ProtocolInfo{} }

func open(t *testing.T, c *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/t/"+method)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// talk sends messages and waits for the answer to each.
func talk(s grpc.ClientStream, n, size int) error {
	for range n {
		if err := s.SendMsg(&controlpb.StatusResponse{Json: make([]byte, size)}); err != nil {
			return s.RecvMsg(new(emptypb.Empty))
		}
		if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
	}
	return nil
}

// A stream carries any amount as long as it is read, in messages of any size, and other streams on
// the connection do not disturb the count.
func TestMeterGivesBackWhatIsRead(t *testing.T) {
	k := newTaker(t, control.Budget{Bytes: 4 << 20, Calls: 100})
	c := k.dial(t, "alice")
	open(t, c, "Ignore")
	long, short := open(t, c, "Read"), open(t, c, "Read")
	for range 16 {
		if err := talk(short, 100, 10); err != nil {
			t.Fatal(err)
		}
		if err := talk(long, 1, 3<<20); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []grpc.ClientStream{long, short} {
		s.CloseSend()
		if err := s.RecvMsg(new(emptypb.Empty)); !errors.Is(err, io.EOF) {
			t.Fatalf("the end of a stream: %v", err)
		}
	}
	if n := k.used(); n != 0 {
		t.Errorf("%d bytes are counted, and the calls are over", n)
	}
}

// Unread data is counted whether the message is complete or not, and ends the connection.
func TestMeterCountsWhatIsNotRead(t *testing.T) {
	for _, size := range []int{10 << 10, 1 << 20} {
		k := newTaker(t, control.Budget{Bytes: 1 << 20})
		c := k.dial(t, "mallory")
		ended := make(chan error, 40)
		for range 40 {
			s := open(t, c, "Ignore")
			go func() {
				for s.SendMsg(&controlpb.StatusResponse{Json: make([]byte, size)}) == nil {
				}
				ended <- s.RecvMsg(new(emptypb.Empty))
			}()
			if len(k.refused) > 0 {
				break
			}
		}
		if said := testkit.Receive(t, "a refusal", k.refused); !strings.Contains(said, "mallory") || !strings.Contains(said, "(limits.bytes)") {
			t.Errorf("told %q", said)
		}
		if err := testkit.Receive(t, "the end of a stream", ended); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream ended with %v", err)
		}
		if err := talk(open(t, k.dial(t, "alice"), "Read"), 3, 512<<10); err != nil {
			t.Errorf("another's: %v", err)
		}
	}
}

// When the total is too high, the peer with the most bytes loses its connections, not the newcomer.
func TestMeterOfAll(t *testing.T) {
	k := newTaker(t, control.Budget{Bytes: 1 << 20, AllBytes: 1 << 20})
	c := k.dial(t, "mallory")
	for range 14 { // of 64 KiB each
		s := open(t, c, "Ignore")
		go func() {
			for s.SendMsg(&controlpb.StatusResponse{Json: make([]byte, 8<<10)}) == nil {
			}
		}()
	}
	for k.used() < 800<<10 {
		if t.Context().Err() != nil || len(k.refused) > 0 {
			t.Fatalf("%d bytes are taken, %d refused", k.used(), len(k.refused))
		}
		time.Sleep(time.Millisecond)
	}
	if err := talk(open(t, k.dial(t, "alice"), "Read"), 3, 512<<10); err != nil {
		t.Errorf("who has less: %v", err)
	}
	// It is ended for alice's next bytes, or at its own ones after those.
	if said := testkit.Receive(t, "a refusal", k.refused); !strings.HasPrefix(said, "mallory: ") || !strings.Contains(said, "(limits.all_bytes)") {
		t.Errorf("told %q", said)
	}
}

// Calls that the peer has cancelled make room for others at once, however long the server takes to
// end them.
func TestMeterForgetsCancelledCalls(t *testing.T) {
	const calls = 100
	k := newTaker(t, control.Budget{Calls: calls})
	c := k.dial(t, "a")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var streams []grpc.ClientStream
		for range calls {
			s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/t/Ignore")
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		cancel()
		for _, s := range streams {
			s.RecvMsg(new(emptypb.Empty)) // returns when the stream's end is on its way
		}
	}
	if err := talk(open(t, c, "Read"), 1, 10); err != nil {
		t.Errorf("a call after the cancelled ones: %v", err)
	}
	if len(k.refused) > 0 {
		t.Errorf("%d calls refused, the first: %s", len(k.refused), <-k.refused)
	}
	for range calls + 1 {
		open(t, c, "Ignore")
	}
	if why := <-k.refused; !strings.Contains(why, "calls") {
		t.Errorf("one call too many: %s", why)
	}
}
