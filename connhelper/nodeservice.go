package connhelper

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// NodeServiceSettings are the settings of the node service, which launches jobs here.
type NodeServiceSettings struct {
	Store   daemon.Path   `yaml:"store" example:"/var/cache/isthmus/jobs" help:"Folder for the programs and inputs of jobs, which are kept as a cache, and for the working folders of jobs. Two helpers must not share it. Empty: a folder for this node in the service manager's cache folder (CACHE_DIRECTORY), or in the user's."`
	Limit   daemon.Size   `yaml:"limit" default:"4GiB" min:"1MiB" help:"Maximum bytes of all cached files, and of the files of one job. The least recently used are removed first."`
	Orphan  time.Duration `yaml:"orphan" default:"30s" min:"1s" max:"30s" help:"How long a reservation or its job stays without contact with its submitter, and how long a job runs on without a helper."`
	Starter daemon.Path   `yaml:"starter" example:"/run/isthmus-starter/starter.sock" help:"Socket of the node's isthmus-starter, which runs each submitter's jobs in a separate account. Without one, a helper of an ordinary user accepts that user's jobs only, and one of a system account accepts none."`
	Owner   []string      `yaml:"owner" example:"[alice@sitea/*]" help:"Without starter: the submitters whose jobs this helper accepts and runs in its own account: patterns of USER@SITE/NODE. Empty: the user of the same name at the same site."`
	EndJobs bool          `yaml:"end_jobs" default:"false" help:"Whether jobs end with this helper. If false, they run on for node_service.orphan when it ends or is killed, and a helper started within that time takes them over."`
}

// storeOf returns the folder, or "" where the settings name none and there is no default.
func (s NodeServiceSettings) storeOf(node overlay.NodeID) string {
	dir := s.storeOrParent()
	if dir == "" || s.Store != "" {
		return dir
	}
	return filepath.Join(dir, string(node.Site)+"-"+node.Name)
}

// storeOrParent returns the folder that the settings name, or that in which the one of each node is by
// default.
func (s NodeServiceSettings) storeOrParent() string {
	if s.Store != "" {
		return string(s.Store)
	}
	if dir := os.Getenv("CACHE_DIRECTORY"); filepath.IsAbs(dir) {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "isthmus")
}

// nearPings is how many nodes are pinged at a time for the list of hosts.
const nearPings = 16

// nodeService is the server of the node service and its measurements of other nodes.
type nodeService struct {
	server *nodeservice.Server
	nearby *nearby.Nearby
}

// newNodeService returns the node service of the helper. offers reports whether the settings offer
// jobs, whether they can be taken or not: a submitter is then told why they are not.
func newNodeService(h *Helper, cfg Config, offers bool, creds *control.Credentials, log *slog.Logger) (*nodeService, error) {
	var g nodeService
	g.nearby = nearby.New(nodeservice.Pinger(h.node, func(ctx context.Context, node overlay.NodeID) (nodepb.NodeServiceClient, func(), error) {
		return g.server.Reach(ctx, node)
	}), nearPings, latency.Config{}, log)
	policy := cfg.Offer.Policy()
	policy.Lease = cfg.NodeService.Orphan
	var err error
	options := nodeservice.Options{
		Node: h.node, Policy: policy, Orphan: cfg.NodeService.Orphan, Helper: cfg.Socket, Log: log,
		EndJobs: cfg.NodeService.EndJobs, Store: cfg.NodeService.storeOf(h.node), Limit: int64(cfg.NodeService.Limit),
		Dead: h.Dead, Forget: h.Forget, Audit: h.opts.Audit,
	}
	if why := cfg.setAccounts(&options); why != "" && offers {
		options.Takes = func(nodeservice.Asker) error { return errors.New(why) }
	}
	limits := cfg.Limits.orDefault()
	g.server, err = nodeservice.New(nodeservice.Settings{
		Options: options,
		Bounds: nodeservice.Bounds{
			Door: limits.Door, DoorPerUser: limits.DoorPerUser, DoorCalls: limits.DoorCalls, DoorCallsPerUser: limits.DoorCallsPerUser,
			DoorBytes: int(limits.DoorBytes), DoorBytesPerUser: int(limits.DoorBytesPerUser),
			NodeBytes: int(limits.NodeBytes), AllNodesBytes: int(limits.NodeBytesTotal),
		},
		Credentials: creds,
		Hosts:       nodeservice.HostList{List: h.Hosts, Nearby: g.nearby}.Hosts,
	})
	if err == nil {
		h.callers.Store(g.server)
	}
	return &g, err
}

func (g *nodeService) serve(ctx context.Context, door *net.UnixListener) error {
	ctx, stop := context.WithCancel(ctx)
	var pings sync.WaitGroup
	defer pings.Wait()
	defer stop()
	pings.Go(func() { g.nearby.Serve(ctx) })
	return g.server.Serve(ctx, door)
}

// serveAll runs the helper and its node service, whose socket is next to the helper's. The service
// ends first, because it still uses the helper while it ends.
func serveAll(ctx context.Context, h *Helper, g *nodeService, ln *net.UnixListener, mode fs.FileMode, ready func()) error {
	door, err := local.ListenUnix(ln.Addr().String()+nodeservice.DoorSuffix, mode)
	if err != nil {
		ln.Close()
		return err
	}
	ready()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var both sync.WaitGroup
	var serviceErr error
	both.Go(func() {
		defer end()
		serviceErr = g.serve(ctx, door)
	})
	err = h.Serve(life, ln)
	stop()
	both.Wait()
	return errors.Join(err, serviceErr)
}
