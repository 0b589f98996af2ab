package nodeservice

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// localHandshake bounds the handshake of a connection at the local socket.
const localHandshake = 10 * time.Second

// serveLocal serves connections at the local socket until the server stops or ln fails.
func (g *Server) serveLocal(ctx context.Context, ln *net.UnixListener) error {
	return g.local.Serve(&localListener{accept.Patient(ctx, g.settings.Log, ln), g})
}

// The windows of the local socket: unread data from an account occupies the helper's memory, and local
// peers need no large window.
const (
	localWindow     = 64 << 10 // of a call; gRPC makes room for a longer message when it is read
	localConnWindow = 1 << 20
)

// newLocalServer returns the server for local programs.
func (g *Server) newLocalServer() *grpc.Server {
	return grpc.NewServer(append(g.meter.ServerOptions(), grpc.Creds(localCredentials{g}), grpc.WaitForHandlers(true),
		grpc.MaxConcurrentStreams(maxSessions), grpc.ConnectionTimeout(localHandshake),
		grpc.InitialWindowSize(localWindow), grpc.InitialConnWindowSize(localConnWindow))...)
}

// newLocalMeter returns the meter that bounds the calls at the local socket and their bytes.
func (g *Server) newLocalMeter() *control.Meter {
	b := g.settings.Bounds
	return control.NewMeter(control.Budget{
		Calls: b.DoorCallsPerUser, AllCalls: b.DoorCalls, Bytes: b.DoorBytesPerUser, AllBytes: b.DoorBytes, Request: control.StandardBudget.Request,
	}, g.settings.Node.String(), control.MeterNames{
		Calls: "door_calls", CallsPerKey: "door_calls_per_user", Bytes: "door_bytes", BytesPerKey: "door_bytes_per_user",
	}, func(who string, err error) { g.auditLocal(who, "budget", err) })
}

// auditLocal records a refusal to an account at the local socket.
func (g *Server) auditLocal(who, rule string, err error) {
	g.settings.Audit.Append(audit.Record{
		Event: audit.Refusal, Peer: who, Rule: rule, Reason: err.Error(),
		Sites: []string{string(g.settings.Node.Site)}, Nodes: []string{g.settings.Node.Name},
	})
}

// account is an account of this node, as limits name it.
type account uint32

// String returns "uid 1000".
func (a account) String() string { return fmt.Sprintf("uid %d", uint32(a)) }

// localListener bounds the connections at the local socket: all users share the helper's descriptors.
type localListener struct {
	net.Listener
	g *Server
}

// Accept returns the next connection within the bounds.
func (d *localListener) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		u := c.(*net.UnixConn)
		cred, err := local.PeerCred(u)
		who := account(cred.UID)
		if err == nil {
			if err = d.g.callers.Take(who, 1); err == nil {
				c := &counted{UnixConn: u, leave: sync.OnceFunc(func() { d.g.callers.Give(who, 1) })}
				return localConn{d.g.meter.Conn(c, who.String()), c}, nil
			}
		}
		u.Close()
		d.g.auditLocal(who.String(), "door", err)
	}
}

// localConn is a connection at the local socket.
type localConn struct {
	control.Metered
	below *counted
}

// counted is a connection that is counted until Close.
type counted struct {
	*net.UnixConn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}

// newCallers returns the counter of the connections at the local socket.
func newCallers(total, perUser int) *limit.Counter[account] {
	return limit.NewCounter[account](limit.Bounds{
		What: "connections of local programs to the node service", Total: total, PerKey: perUser,
		TotalSetting: "limits.door", KeySetting: "limits.door_per_user",
	})
}

// Limits returns the use of the limits on the local socket and on other nodes' calls, for metrics.
func (g *Server) Limits() []metrics.Limit {
	all := metrics.LimitsOf("door", "door_per_user", g.callers.Stats())
	all = append(all, g.meter.Limits()...)
	return append(all, metrics.LimitsOf("node_bytes_total", "node_bytes", g.end.ByteStats())...)
}
