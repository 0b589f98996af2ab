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

// doorGreeting bounds the handshake of a connection at the door.
const doorGreeting = 10 * time.Second

// serveDoor serves connections at the door until the server stops or the door fails.
func (g *Server) serveDoor(ctx context.Context, door *net.UnixListener) error {
	return g.door.Serve(&doorway{accept.Patient(ctx, g.settings.Log, door), g})
}

// The windows of the door: unread data from an account occupies the helper's memory, and local
// peers need no large window.
const (
	doorWindow     = 64 << 10 // of a call; gRPC makes room for a longer message when it is read
	doorConnWindow = 1 << 20
)

// newDoor returns the server for local programs.
func newDoor(meter *control.Meter) *grpc.Server {
	return grpc.NewServer(append(meter.ServerOptions(), grpc.Creds(doorCredentials{}), grpc.WaitForHandlers(true),
		grpc.MaxConcurrentStreams(maxSessions), grpc.ConnectionTimeout(doorGreeting),
		grpc.InitialWindowSize(doorWindow), grpc.InitialConnWindowSize(doorConnWindow))...)
}

// newDoorMeter returns the meter that bounds the calls at the door and their bytes.
func (g *Server) newDoorMeter() *control.Meter {
	b := g.settings.Bounds
	return control.NewMeter(control.Budget{
		Calls: b.DoorCallsPerUser, AllCalls: b.DoorCalls, Bytes: b.DoorBytesPerUser, AllBytes: b.DoorBytes, Request: control.StandardBudget.Request,
	}, g.settings.Node.String(), control.MeterNames{
		Calls: "door_calls", CallsPerKey: "door_calls_per_user", Bytes: "door_bytes", BytesPerKey: "door_bytes_per_user",
	}, func(who string, err error) { g.auditDoor(who, "budget", err) })
}

// auditDoor records a refusal to an account at the door.
func (g *Server) auditDoor(who, rule string, err error) {
	g.settings.Audit.Append(audit.Record{
		Event: audit.Refusal, Peer: who, Rule: rule, Reason: err.Error(),
		Sites: []string{string(g.settings.Node.Site)}, Nodes: []string{g.settings.Node.Name},
	})
}

// account is an account of this node, as limits name it.
type account uint32

// String returns "uid 1000".
func (a account) String() string { return fmt.Sprintf("uid %d", uint32(a)) }

// doorway bounds the connections at the door: all users share the helper's descriptors.
type doorway struct {
	net.Listener
	g *Server
}

// Accept returns the next connection within the bounds.
func (d *doorway) Accept() (net.Conn, error) {
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
				return doorConn{d.g.meter.Conn(c, who.String()), c}, nil
			}
		}
		u.Close()
		d.g.auditDoor(who.String(), "door", err)
	}
}

// doorConn is a connection at the door.
type doorConn struct {
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

// newCallers returns the counter of the connections at the door.
func newCallers(total, perUser int) *limit.Counter[account] {
	return limit.NewCounter[account](limit.Bounds{
		What: "connections of local programs to the node service", Total: total, PerKey: perUser,
		TotalSetting: "limits.door", KeySetting: "limits.door_per_user",
	})
}

// Limits returns the use of the limits on the door and on other nodes' calls, for metrics.
func (g *Server) Limits() []metrics.Limit {
	all := metrics.LimitsOf("door", "door_per_user", g.callers.Stats())
	all = append(all, g.meter.Limits()...)
	return append(all, metrics.LimitsOf("node_bytes_total", "node_bytes", g.end.ByteStats())...)
}
