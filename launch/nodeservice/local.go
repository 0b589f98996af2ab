package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/overlay"
)

// DoorSuffix is appended to the path of a helper's own socket to form the path of the node service's
// local socket, at which NodeService and Submitters serve local programs. Settings call that socket the door.
const DoorSuffix = ".node"

// The metadata of calls.
const (
	metaNode = "isthmus-node" // the node that a local program addresses; none: its own
	metaUser = "isthmus-user" // UID NAME of the calling program's user, set by its helper; further ones: Asker.Origins
)

// Connect returns a connection to the node service of the helper whose socket is given. It dials at
// the first use. Close it when done.
func Connect(helper string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+helper+DoorSuffix,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the kernel authenticates the peer
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		// Finds a restarted helper quickly.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithAuthority("node"), grpc.WithDisableServiceConfig(), control.Bounded())
}

// At returns a context whose calls, on a connection of Connect, are forwarded to the node service
// of a node.
func At(ctx context.Context, node overlay.NodeID) context.Context {
	return metadata.AppendToOutgoingContext(ctx, metaNode, node.Key())
}

// localInfo identifies the other end of a local connection.
type localInfo struct {
	credentials.CommonAuthInfo
	control.Metered
	who Asker
	err error // why nobody can be said to call
}

// AuthType implements credentials.AuthInfo.
func (localInfo) AuthType() string { return "unix" }

// localCredentials identify the peer by the kernel's credentials.
type localCredentials struct{ g *Server }

func (l localCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	d, ok := c.(localConn)
	if !ok {
		return nil, nil, fmt.Errorf("nodeservice: a connection of type %T at the local socket", c)
	}
	cred, err := local.PeerCred(d.below.UnixConn)
	if err != nil {
		return nil, nil, err
	}
	who, err := l.g.accounts.caller(l.g.settings.Node, cred)
	if err != nil {
		l.g.auditLocal(account(cred.UID).String(), "job", err)
	}
	return c, localInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, d.Metered, who, err}, nil
}

func (localCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("nodeservice: server credentials used by a client")
}

func (localCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}
func (c localCredentials) Clone() credentials.TransportCredentials { return c }
func (localCredentials) OverrideServerName(string) error           { return nil }

// localCaller returns for whom a program calls at the local socket.
func localCaller(ctx context.Context) (Asker, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Asker{}, errors.New("nodeservice: a call without a peer")
	}
	info, ok := p.AuthInfo.(localInfo)
	if !ok {
		return Asker{}, errors.New("nodeservice: a call that did not arrive at the local socket")
	}
	return info.who, info.err
}

// remoteCaller returns the user of a program that calls over another helper's session.
func remoteCaller(ctx context.Context) (Asker, error) {
	session := control.SessionOf(ctx)
	id := session.Peer()
	if id.Role != control.RoleHelper {
		return Asker{}, fmt.Errorf("%w: %v is no helper, and only helpers pass calls on", overlay.ErrForbidden, id)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(metaNode)) > 0 {
		return Asker{}, fmt.Errorf("%w: %v passes on what it means for another node", overlay.ErrForbidden, id)
	}
	who, err := askerOf(id.Node(), md.Get(metaUser))
	who.Address = session.RemoteAddr().Addr()
	if own := session.Account(); err == nil && own != "" && who.User != "" && own != who.User {
		err = fmt.Errorf("%w: %v is of an allocation of %s's, and calls for no other user, and not for %s", overlay.ErrForbidden, id, own, who.User)
	}
	return who, err
}

// askerOf returns for whom a node calls, as it says in metaUser.
func askerOf(node overlay.NodeID, users []string) (Asker, error) {
	who := Asker{Node: node}
	if len(users) == 0 { // for the helper itself
		return who, nil
	}
	number, name, _ := strings.Cut(users[0], " ")
	uid, err := strconv.ParseUint(number, 10, 32)
	if err == nil {
		err = overlay.CheckAccount(name)
	}
	if err == nil {
		err = checkOrigins(users[1:])
	}
	who.UID, who.User, who.Origins = uint32(uid), name, users[1:]
	return who, err
}

// checkOrigins checks what another node says of the submitters of the job that calls.
func checkOrigins(origins []string) error {
	if len(origins) > maxOrigins {
		return fmt.Errorf("a call for %d jobs that started each other; at most %d", len(origins), maxOrigins)
	}
	for _, origin := range origins {
		user, node, _ := strings.Cut(origin, "@")
		if _, err := overlay.ParseNodeID(node); err != nil {
			return fmt.Errorf("%.200q is no submitter: %w", origin, err)
		}
		if err := overlay.CheckAccount(user); err != nil {
			return err
		}
	}
	return nil
}

// requireUser fails unless the call is on behalf of a user.
func requireUser(who Asker) error {
	if who.User == "" {
		return fmt.Errorf("%w: %v does not say for whom it calls (%s)", overlay.ErrForbidden, who.Node, metaUser)
	}
	return nil
}

// target returns the node that a call at the local socket addresses.
func target(ctx context.Context, own overlay.NodeID) (overlay.NodeID, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	switch named := md.Get(metaNode); len(named) {
	case 0:
		return own, nil
	case 1:
		return overlay.ParseNodeID(named[0])
	}
	return own, fmt.Errorf("the call names several nodes as %s", metaNode)
}

// onBehalf returns the context of a call that is forwarded for who. A receiver that knows nothing of
// Origins refuses a call for several users.
func onBehalf(ctx context.Context, who Asker) context.Context {
	users := append([]string{fmt.Sprintf("%d %s", who.UID, who.User)}, who.Origins...)
	return metadata.NewOutgoingContext(ctx, metadata.MD{metaUser: users})
}

// Fits reports whether an identity matches one of the patterns of path.Match.
func Fits(patterns []string, identity string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, identity)
		return ok && err == nil
	})
}
