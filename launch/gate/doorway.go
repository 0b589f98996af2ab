package gate

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/accept"
	"github.com/isthmus-grid/isthmus/internal/audit"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/local"
)

// doorGreeting is how long a connection at the door may take to begin.
const doorGreeting = 10 * time.Second

// serveDoor answers connections at the door until the server stops or the door fails.
func (g *Gate) serveDoor(ctx context.Context, door *net.UnixListener) error {
	return g.door.Serve(&doorway{accept.Patient(ctx, g.settings.Log, door), g})
}

// newDoor returns the server of local programs.
func newDoor() *grpc.Server {
	return grpc.NewServer(grpc.Creds(doorCredentials{}), grpc.WaitForHandlers(true), grpc.MaxConcurrentStreams(maxSessions), grpc.ConnectionTimeout(doorGreeting))
}

// account is one of this node, as limits name it.
type account uint32

// String returns "uid 1000".
func (a account) String() string { return fmt.Sprintf("uid %d", uint32(a)) }

// doorway bounds the connections at the door: the descriptors of the helper are all its
// users'.
type doorway struct {
	net.Listener
	g *Gate
}

// Accept returns the next connection for which there is room.
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
				return &counted{UnixConn: u, leave: sync.OnceFunc(func() { d.g.callers.Give(who, 1) })}, nil
			}
		}
		u.Close()
		d.g.settings.Audit.Append(audit.Record{
			Event: audit.Refusal, Peer: who.String(), Rule: "door", Reason: err.Error(),
			Sites: []string{string(d.g.settings.Node.Site)}, Nodes: []string{d.g.settings.Node.Name},
		})
	}
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

// newCallers returns what counts the connections at the door.
func newCallers(total, perUser int) *limit.Counter[account] {
	return limit.NewCounter[account](limit.Bounds{
		What: "connections of local programs to the gate", Total: total, PerKey: perUser,
		TotalSetting: "limits.door", KeySetting: "limits.door_per_user",
	})
}

// Callers returns how far the limits of connections at the door are used, for metrics.
func (g *Gate) Callers() limit.Stats { return g.callers.Stats() }
