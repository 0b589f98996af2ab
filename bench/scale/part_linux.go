package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/proxy"
)

// The parts that other processes of this program play.
const (
	partProxy   = "proxy"
	partBroker  = "broker"
	partFrontal = "frontal"
	partHelpers = "helpers"
)

// order is a part's configuration, on its first line of input.
type order struct {
	Key  []byte     `json:"key,omitempty"`  // ticket key, of the proxy
	Rate quota.Rate `json:"rate,omitempty"` // of the proxy

	CA     string `json:"ca,omitempty"`     // folder of the grid's CA
	Broker string `json:"broker,omitempty"` // address, for the frontal

	Frontal   string `json:"frontal,omitempty"` // address, for helpers
	Job       string `json:"job,omitempty"`     // the key of its processes' job
	Dir       string `json:"dir,omitempty"`     // for sockets
	First     int    `json:"first,omitempty"`   // number of the first helper
	Helpers   int    `json:"helpers,omitempty"` // how many
	Processes int    `json:"processes,omitempty"`
	Ranks     int    `json:"ranks,omitempty"` // first rank
	Dials     int    `json:"dials,omitempty"` // from the first process
}

const (
	proxyName = "bench"
	site      = "sitea"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// Part runs a part until its input ends. It reads an order and prints a line when it is ready.
func Part(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("part %s: the order: %w", name, err)
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("part %s: the order: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with its input, which the parent closes, or with the process
		if name != partHelpers {
			io.Copy(io.Discard, lines)
			cancel()
		}
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	switch name {
	case partProxy:
		return serveProxy(ctx, o, out, log)
	case partBroker:
		return serveBroker(ctx, o, out, log)
	case partFrontal:
		return serveFrontal(ctx, o, out, log)
	case partHelpers:
		return serveHelpers(ctx, o, lines, out, log)
	}
	return fmt.Errorf("there is no part %q", name)
}

// serveProxy runs the daemon with its default configuration, with a rate and without a broker.
func serveProxy(ctx context.Context, o order, out io.Writer, log *slog.Logger) error {
	set := daemon.Defaults[proxy.Config]().Settings()
	set.Name = proxyName
	var err error
	if set.Key, err = ticket.ParseKey(o.Key); err != nil {
		return err
	}
	if set.Quota, err = ratelimit.New(quota.Rules{Rate: o.Rate}, "", log); err != nil {
		return err
	}
	ln, err := carrier.ListenIn(ctx, loopback, overlay.Ports{})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ln.Addr())
	return proxy.New(set, log).Serve(ctx, ln)
}

// credentials makes those of id from the CA in a folder.
func credentials(dir string, id control.Identity) (*control.Credentials, error) {
	authority, err := ca.Load(dir)
	if err != nil {
		return nil, err
	}
	return authority.Credentials(id)
}

func serveBroker(ctx context.Context, o order, out io.Writer, log *slog.Logger) error {
	creds, err := credentials(o.CA, control.Identity{Role: control.RoleBroker, Name: "main"})
	if err != nil {
		return err
	}
	cfg := broker.DefaultConfig()
	cfg.AllowLoopback = true
	b, err := broker.New(cfg, creds, log)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ln.Addr())
	return b.Serve(ctx, ln)
}

func serveFrontal(ctx context.Context, o order, out io.Writer, log *slog.Logger) error {
	creds, err := credentials(o.CA, control.Identity{Role: control.RoleFrontal, Site: site})
	if err != nil {
		return err
	}
	cfg := daemon.Defaults[frontal.Config]()
	cfg.Site, cfg.Broker, cfg.Listen = site, []string{o.Broker}, netip.AddrPortFrom(loopback, 0)
	cfg.Measure = 0 // the broker and proxies are not part of this measurement
	f, err := frontal.New(cfg, creds, log)
	if err != nil {
		return err
	}
	return f.Serve(ctx, func(facts ...string) { fmt.Fprintln(out, facts[0][len("listen="):]) })
}

// nobody is the user of helpers if this process may choose. With more privileges each of them would
// inspect every packet of the host.
const nobody = 65534

// serveHelpers makes helpers join, then on a line of input their processes, then on another makes
// the first process dial others, and prints how long each took.
func serveHelpers(ctx context.Context, o order, in *bufio.Reader, out io.Writer, log *slog.Logger) error {
	authority, err := ca.Load(o.CA)
	if err == nil {
		err = os.Chdir(o.Dir) // which may lie where an ordinary user cannot go
	}
	if err != nil {
		return err
	}
	o.Dir = "."
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return fmt.Errorf("becoming an ordinary user: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range o.Helpers {
		creds, err := authority.Credentials(control.Identity{Role: control.RoleHelper, Site: site, Name: fmt.Sprintf("n%d", o.First+i)})
		if err != nil {
			return err
		}
		h, err := connhelper.New(connhelper.Options{
			Credentials: creds, Frontal: o.Frontal, Address: loopback, Log: log, MaxOpen: 1024, AllowLoopback: true,
		})
		if err != nil {
			return err
		}
		ln, err := local.ListenUnix(o.socket(i), 0o600)
		if err != nil {
			return err
		}
		all.Go(func() { h.Serve(ctx, ln) })
	}
	fmt.Fprintln(out, "helpers started")
	if _, err := in.ReadString('\n'); err != nil {
		return nil // the parent has ended, or needs no more
	}
	ranks, err := o.join(ctx, &all)
	defer func() {
		for _, r := range ranks {
			r.Close()
		}
	}()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "processes joined")
	if _, err := in.ReadString('\n'); err != nil {
		return nil
	}
	took, err := o.dial(ctx, ranks)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(took); err != nil {
		return err
	}
	in.ReadString('\n') // its end
	return nil
}

func (o order) socket(helper int) string {
	return filepath.Join(o.Dir, fmt.Sprintf("h%d", o.First+helper))
}

// join registers the processes, dealt to the helpers in turn.
func (o order) join(ctx context.Context, all *sync.WaitGroup) ([]*local.Client, error) {
	key, err := jobkey.Parse(o.Job)
	if err != nil {
		return nil, err
	}
	var ranks []*local.Client
	for i := range o.Processes {
		c := local.NewClient(local.ClientConfig{
			Socket:  o.socket(i % o.Helpers),
			Process: overlay.ProcessName{Job: key.ID(), Rank: uint32(o.Ranks + i)},
			Auth:    key.Auth(),
		})
		ranks = append(ranks, c)
		all.Go(func() { c.Serve(ctx) })
	}
	for _, c := range ranks {
		if _, err := c.Ready(ctx); err != nil {
			return ranks, err
		}
	}
	return ranks, nil
}

// dial makes the first process dial others, on other nodes, one after the other.
func (o order) dial(ctx context.Context, ranks []*local.Client) ([]float64, error) {
	var took []float64
	for i := range min(o.Dials, o.Helpers-1) {
		key, err := jobkey.Parse(o.Job)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		c, err := ranks[0].Dial(ctx, overlay.ProcessName{Job: key.ID(), Rank: uint32(o.Ranks + 1 + i)}, overlay.AllWays)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
		c.Conn.Close()
	}
	return took, nil
}
