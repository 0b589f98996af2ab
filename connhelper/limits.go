package connhelper

import (
	"cmp"
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// Limits bound the resources that others use at a helper. A bound of 0 means the default.
type Limits struct {
	Processes int `yaml:"processes" default:"4096" min:"1" max:"1000000" help:"Processes of this node."`
	PerUser   int `yaml:"processes_per_user" default:"2048" min:"1" max:"1000000" help:"The same for one account."`

	OpenPerUser int `yaml:"open_per_user" default:"0" min:"0" max:"65536" help:"Connections being set up, of those that max_open allows, for processes of one account. 0 is three quarters of max_open, which leaves room for other accounts."`

	NamesPerUser int `yaml:"names_per_user" default:"2048" min:"1" max:"1000000" help:"Published names of one account at a time."`

	Door        int `yaml:"door" default:"4096" min:"1" max:"1000000" help:"Connections of local programs that launch or watch jobs, such as isthmus run, at a time."`
	DoorPerUser int `yaml:"door_per_user" default:"1024" min:"1" max:"1000000" help:"The same for one account."`

	DoorCalls        int         `yaml:"door_calls" default:"8192" min:"1" max:"1000000" help:"Unanswered calls on these connections, about 25 KB each; more are refused. A launched job has one for each of its nodes."`
	DoorCallsPerUser int         `yaml:"door_calls_per_user" default:"6144" min:"1" max:"1000000" help:"The same for one account."`
	DoorBytes        daemon.Size `yaml:"door_bytes" default:"1GiB" min:"16MiB" max:"1TiB" help:"Unread bytes of these calls' messages, incomplete ones included. Over the limit, the account with the most bytes loses its connections."`
	DoorBytesPerUser daemon.Size `yaml:"door_bytes_per_user" default:"768MiB" min:"8MiB" max:"1TiB" help:"The same for one account; exceeding it ends the connection. A job that copies files has up to 1.1 MiB in flight for each of its nodes."`

	NodeBytes      daemon.Size `yaml:"node_bytes" default:"128MiB" min:"16MiB" max:"1TiB" help:"Unread bytes of one remote node's calls about jobs, incomplete messages included; exceeding it ends its session."`
	NodeBytesTotal daemon.Size `yaml:"node_bytes_total" default:"512MiB" min:"16MiB" max:"1TiB" help:"The same for all remote nodes. Over the limit, the node with the most bytes loses its sessions."`

	HalfOpen          int `yaml:"half_open" default:"1024" min:"1" max:"1000000" help:"Connections to the data port, and as many to the socket, that are not identified yet. At the limit, the source address, or the account, with the most connections loses its oldest one to make room."`
	HalfOpenPerSource int `yaml:"half_open_per_source" default:"512" min:"1" max:"1000000" help:"The same for one source: an IPv4 address, an IPv6 /64; or for one account at the socket."`
}

// orDefault replaces unset bounds with their defaults.
func (l Limits) orDefault() Limits {
	for _, b := range []struct {
		of     *daemon.Size
		preset daemon.Size
	}{{&l.DoorBytes, 1 << 30}, {&l.DoorBytesPerUser, 768 << 20}, {&l.NodeBytes, 128 << 20}, {&l.NodeBytesTotal, 512 << 20}} {
		*b.of = cmp.Or(*b.of, b.preset)
	}
	for _, b := range []struct {
		of     *int
		preset int
	}{{&l.DoorCalls, 8192}, {&l.DoorCallsPerUser, 6144}, {&l.Processes, 4096}, {&l.PerUser, 2048}, {&l.NamesPerUser, 2048}, {&l.Door, 4096}, {&l.DoorPerUser, 1024}, {&l.HalfOpen, 1024}, {&l.HalfOpenPerSource, 512}} {
		if *b.of == 0 {
			*b.of = b.preset
		}
	}
	return l
}

// uid is a user account of the node.
type uid uint32

// String returns "uid 1000".
func (u uid) String() string { return fmt.Sprintf("uid %d", uint32(u)) }

// budgets are the counters that Limits bound.
type budgets struct {
	audit     auditor
	processes *limit.Counter[uid]
	open      *limit.Counter[uid] // dials and signalling requests in progress
	names     *limit.Counter[uid] // published
	silent    *limit.Places[uid]  // connections to the socket without a hello
	half      *accept.HalfOpen    // connections to the data port without an intro
}

func newBudgets(l Limits, maxOpen int, a auditor) *budgets {
	return &budgets{
		audit: a,
		open: limit.NewCounter[uid](limit.Bounds{
			What: "connections in the making", Total: maxOpen, PerKey: cmp.Or(l.OpenPerUser, maxOpen-maxOpen/4),
			TotalSetting: "max_open", KeySetting: "limits.open_per_user",
		}),
		names: limit.NewCounter[uid](limit.Bounds{What: "published names", PerKey: l.NamesPerUser, KeySetting: "limits.names_per_user"}),
		processes: limit.NewCounter[uid](limit.Bounds{
			What: "processes", Total: l.Processes, PerKey: l.PerUser, TotalSetting: "limits.processes", KeySetting: "limits.processes_per_user",
		}),
		silent: limit.NewPlaces[uid](limit.Bounds{
			What: "connections to the socket without a hello", Total: l.HalfOpen, PerKey: l.HalfOpenPerSource,
			TotalSetting: "limits.half_open", KeySetting: "limits.half_open_per_source",
		}),
		half: accept.NewHalfOpen(accept.Bounds{
			What: "data connections without an intro", Total: l.HalfOpen, PerSource: l.HalfOpenPerSource,
			TotalSetting: "limits.half_open", SourceSetting: "limits.half_open_per_source",
		}, func(from net.Addr, err error) {
			a.log.Append(audit.Record{
				Event: audit.Refusal, Peer: from.String(), Rule: "too-many-intros", Reason: err.Error(),
				Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name},
			})
		}),
	}
}

// admit counts a connection in the making, or a request about a name, against its process's
// account, until release.
func (b *budgets) admit(p *process) (release func(), err error) {
	who := uid(p.uid)
	if err := b.open.Take(who, 1); err != nil {
		b.audit.overBudget(p, err)
		return nil, fmt.Errorf("helper %v: %w", b.audit.node, err)
	}
	return func() { b.open.Give(who, 1) }, nil
}
