package connhelper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/connhelper/packetsize"
	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/connhelper/reserve"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Timeouts and intervals.
const (
	introTimeout    = 5 * time.Second        // for the first frame of a connection
	attemptTimeout  = 5 * time.Second        // for one technique, unless the budget is shorter
	relayTimeout    = 15 * time.Second       // for the relay: both ends have to reach it
	awaitStep       = 20 * time.Second       // for one long call about a process that has not started
	registerWait    = 5 * time.Second        // for the frontal to accept a registration
	rejoin          = time.Second            // between attempts to reach a frontal that is away; it is near, and an attempt is cheap
	peerDialTimeout = 12 * time.Second       // for the target's turn to dial, so that the asker still hears why it did not
	persistence     = 8 * time.Second        // for retries after every technique failed once
	longestPause    = 400 * time.Millisecond // between two of these retries
	maxBudget       = 10 * time.Minute       // for one dial, whatever the process requests
	watchTimeout    = 30 * time.Second       // for events about a carrier that was handed out
)

// Options of a helper. All fields but HTTPProxy, Address, Advertise and Limits are required.
type Options struct {
	Credentials *control.Credentials // of a helper: they name site and node
	Frontal     string               // host:port of the site's frontal
	HTTPProxy   carrier.HTTPProxy    // used where the site's profile requires it
	Address     netip.Addr           // where to listen for data; invalid: the address that faces the frontal
	Advertise   netip.Addr           // address under which other sites reach Address, if different
	Log         *slog.Logger
	MaxOpen     int // dials and signalling requests in progress at once, per helper

	// Limits bound the resources that others use at the helper.
	Limits Limits

	// AllowLoopback lets signalling requests name loopback addresses: for a grid that runs on one
	// host.
	AllowLoopback bool

	// Rule decides which addresses named by others are not contacted.
	Rule netrule.Rule

	// Audit receives a record of what the helper does; nil means none.
	Audit *audit.Log

	// Offer is what this node offers in the list of hosts. The zero Offer is nothing.
	Offer offer.Offer

	// Renew makes the helper renew its certificate in its file.
	Renew bool
}

// Helper is the daemon. Make it with New, run it with Serve.
type Helper struct {
	offer      atomic.Pointer[offer.Offer] // of opts, or a later one
	node       overlay.NodeID
	opts       Options
	log        *slog.Logger
	ctl        *control.Endpoint
	home       frontalHolder
	here       table
	paths      *race.Cache
	sizes      packetsize.Memory
	crypt      *encryption
	site       atomic.Pointer[overlay.SiteProfile] // as last received from the frontal; nil before
	work       sync.WaitGroup                      // goroutines of Serve that nothing else waits for
	life       context.Context                     // of Serve, for work that outlasts the call that started it; set before anything runs
	reflectors *coordinate.ReflectorCache
	portPool   *coordinate.PortPool
	engine     *traverse.Engine // nil without CAP_NET_RAW
	proxies    *encap.Dialer
	window     *dialwindow.Window // of connections out of the site
	budgets    budgets
	callers    atomic.Pointer[nodeservice.Server] // for the limits of its socket in metrics; nil until there is one
	calls      chan struct{}                      // one token for each pending call of callBriefly
	seq        atomic.Uint64                      // numbers carriers
	dials      dials                              // counters for metrics
	ownLinks   atomic.Int64                       // open links in the accounts of all processes
	kept       reserve.Table[*process]
	reserving  chan struct{} // one token for each reserve that is being requested
}

// New returns a helper that runs with Serve.
func New(opts Options) (*Helper, error) {
	id := opts.Credentials.Identity()
	if id.Role != control.RoleHelper {
		return nil, fmt.Errorf("the certificate is that of %v; a helper needs a helper's certificate", id)
	}
	h := &Helper{
		node: id.Node(), opts: opts, log: opts.Log,
		here: newTable(), home: newFrontalHolder(), paths: race.NewCache(), crypt: newEncryption(opts.Log, id.Site),
		reflectors: coordinate.NewReflectorCache(), portPool: coordinate.NewPortPool(),
		proxies:   encap.NewDialer(func() *tls.Config { return opts.Credentials.DataClient(control.RoleProxy) }),
		window:    dialwindow.New(opts.Log),
		calls:     make(chan struct{}, maxBrief),
		reserving: make(chan struct{}, maxReserving),
	}
	h.budgets = h.newBudgets(opts.Limits.orDefault())
	h.offer.Store(&opts.Offer)
	h.ctl = control.NewEndpoint(opts.Credentials, opts.Log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterTargetServer(r, targetService{h: h})
	})
	h.ctl.SetTrust(control.Trust{Cut: h.cutFor})
	return h, nil
}

// SetOffer changes what this node offers in the list of hosts, and sends it to the frontal without
// a new session. ctx bounds that; a frontal that is away receives it when it is back.
func (h *Helper) SetOffer(ctx context.Context, o offer.Offer) error {
	h.offer.Store(&o)
	f, _ := h.home.currentFrontal()
	if f == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	_, err := controlpb.NewNodesClient(f.session.Conn()).Enter(ctx, &controlpb.EnterRequest{Software: control.Software, Offer: o.ToPB()})
	return control.FromStatus(err)
}

// Serve accepts processes on ln, a Unix socket, and serves their requests until ctx ends. It
// returns when everything it started has ended; carriers that were handed out live on.
func (h *Helper) Serve(ctx context.Context, ln *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	h.life = ctx
	defer h.work.Wait()
	defer h.ctl.Close() // waits for calls of peers, which may start work
	defer cancel()
	var err error
	if h.engine, err = coordinate.OpenEngine(h.log); err != nil {
		return err
	}
	h.work.Go(func() { coordinate.ServeEngine(ctx, h.engine, h.log) })
	h.work.Go(func() { h.portPool.Serve(ctx) })
	h.work.Go(func() { h.followRevocations(ctx) })
	if h.opts.Renew {
		h.work.Go(func() { enrol.Keep(ctx, h.opts.Credentials, h.log, h.renewed) })
	}
	data, six := &dataPort{h: h}, &dataPort{h: h}
	h.work.Go(func() {
		h.ctl.Keep(ctx, control.DialConfig{Addr: h.opts.Frontal, Role: control.RoleFrontal, Longest: rejoin}, func(ctx context.Context, s *control.Session) error {
			return h.enter(ctx, s, data, six)
		})
	})
	defer data.close()
	defer six.close()
	return h.serveLocal(ctx, ln)
}

// enter declares the node on a new session, registers its processes, and keeps the session in use
// until it ends. It opens the data ports: six is for a site whose firewall lets more in over IPv6.
func (h *Helper) enter(ctx context.Context, s *control.Session, data, six *dataPort) error {
	callCtx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	r, err := controlpb.NewNodesClient(s.Conn()).Enter(callCtx, &controlpb.EnterRequest{Software: control.Software, Offer: h.offer.Load().ToPB()})
	if err != nil {
		return fmt.Errorf("entering %v at %v: %w", h.node, s.Peer(), control.FromStatus(err))
	}
	profile, err := control.ProfileFromPB(overlay.SiteID(r.Site), r.Profile)
	if err != nil {
		return err
	}
	if profile.Site != h.node.Site {
		return fmt.Errorf("%w: %v says it serves %s, this node is %v", overlay.ErrForbidden, s.Peer(), profile.Site, h.node)
	}
	carrier.LimitMTU(profile.MTU)
	h.site.Store(&profile)
	h.crypt.set(control.EncryptionFromPB(r.Encryption))
	f := &frontal{session: s, profile: profile, data: r.DataAddress}
	ip := h.opts.Address
	if !ip.IsValid() {
		ip = s.LocalAddr().Addr()
	}
	f.local, err = data.listen(ip, profile)
	if err != nil {
		// Other nodes cannot dial this one, but it can dial, and relays work.
		h.log.Warn("no data port: other nodes cannot dial this one", "error", err)
	}
	f.public = publicAddress(profile, f.local, h.opts.Advertise)
	if f.public6, err = six.listenOverIPv6(f.local, profile); err != nil {
		h.log.Warn("no data port of IPv6: nodes of other sites cannot dial this one over IPv6", "error", err)
	}
	h.home.set(f)
	defer h.home.clear(f)
	h.log.Info("joined", "site", profile.Site, "frontal", h.opts.Frontal, "listening", addrText(f.local), "public", addrText(f.public), "public6", addrText(f.public6))
	for _, p := range h.here.all() {
		err := h.register(ctx, f, p)
		if err == nil {
			err = h.publishAgain(ctx, f, p)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, overlay.ErrUnreachable), errors.Is(err, overlay.ErrTimeout):
			// The frontal has not refused the process: the next session will decide.
			return fmt.Errorf("registering %v at %v: %w", p.name, s.Peer(), err)
		default:
			p.reject(err)
		}
	}
	<-ctx.Done()
	return nil
}

// idle returns how long the site keeps the state of an idle carrier by path. The value is measured
// in the first minutes of a site: the frontal then makes its helpers enter again, and carriers made
// from then on come with it.
func (h *Helper) idle(path overlay.Path) time.Duration {
	if p := h.site.Load(); p != nil {
		return p.Idle(path)
	}
	return 0
}

// publicAddress returns where other sites dial this node's listener; invalid when they cannot. The
// frontal fills it in for nodes behind the gateway.
func publicAddress(p overlay.SiteProfile, local netip.AddrPort, advertise netip.Addr) netip.AddrPort {
	if !local.IsValid() || p.GatewayOnly || p.Inbound == overlay.InboundNone {
		return netip.AddrPort{}
	}
	if advertise.IsValid() {
		return netip.AddrPortFrom(advertise, local.Port())
	}
	if p.NAT.Translates() {
		return netip.AddrPort{}
	}
	return local
}

// register registers one process with the frontal.
func (h *Helper) register(ctx context.Context, f *frontal, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	point := overlay.AccessPoint{Process: p.name, Generation: p.generation, Node: h.node, Local: f.local, Public: f.public, Public6: f.public6, Principal: p.principal, Grant: p.grant, Proof: p.proof}
	var r *controlpb.RegisterResponse
	err := h.callBriefly(ctx, func() (err error) {
		r, err = f.directory().Register(ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(point)}})
		return control.FromStatus(err)
	})
	if err != nil {
		return err
	}
	if len(r.Faults) > 0 {
		return control.FaultErr(r.Faults[0])
	}
	p.registeredOn.Store(f)
	return nil
}

// frontalFor returns the current session after p is registered on it: a frontal does nothing for a
// process that it does not know, and right after a restart of either a dial may be faster than
// enter.
func (h *Helper) frontalFor(ctx context.Context, p *process) (*frontal, error) {
	f, err := h.frontal(ctx)
	if err != nil || p.registeredOn.Load() == f {
		return f, err
	}
	return f, h.register(ctx, f, p)
}

// withdraw notifies the frontal that a process is gone. If there is no session now, the
// registration ends with its lease.
func (h *Helper) withdraw(ctx context.Context, p *process) {
	f, _ := h.home.currentFrontal()
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	err := h.callBriefly(ctx, func() error {
		_, err := f.directory().Withdraw(ctx, &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{
			{Process: control.ProcessToPB(p.name), Generation: uint64(p.generation), Died: !p.left.Load()},
		}})
		return control.FromStatus(err)
	})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("cannot withdraw", "process", p.name.String(), "error", err)
	}
}

// maxBrief bounds the calls to the frontal that come and go with processes. Together with those
// that max_open bounds they stay below what a frontal accepts of one node (limits.peer_calls): it
// ends the session of a node that far exceeds that, and hundreds of processes may end at a time.
const maxBrief = 128

// callBriefly makes a call to the frontal when the bound allows it.
func (h *Helper) callBriefly(ctx context.Context, call func() error) error {
	select {
	case h.calls <- struct{}{}:
		defer func() { <-h.calls }()
		return call()
	case <-ctx.Done():
		return fmt.Errorf("%w: %d calls to the frontal are not answered yet", overlay.ErrTimeout, maxBrief)
	}
}

// admit counts a connection in the making, or a request about a name, against its process's
// account, until release.
func (h *Helper) admit(p *process) (release func(), err error) {
	who := uid(p.uid)
	if err := h.budgets.open.Take(who, 1); err != nil {
		h.auditOverBudget(p, err)
		return nil, fmt.Errorf("helper %v: %w", h.node, err)
	}
	return func() { h.budgets.open.Give(who, 1) }, nil
}

// frontal is one session with the site's frontal and what was received on it.
type frontal struct {
	session *control.Session
	profile overlay.SiteProfile
	data    string         // the frontal's data port inside the site
	local   netip.AddrPort // this node's data port
	public  netip.AddrPort
	public6 netip.AddrPort
}

func (f *frontal) directory() controlpb.DirectoryClient {
	return controlpb.NewDirectoryClient(f.session.Conn())
}

// frontalHolder holds the current session and lets dials wait for one.
type frontalHolder struct {
	mu      sync.Mutex
	current *frontal
	changed chan struct{} // closed and replaced at every change
	lost    time.Time     // when the last session ended
}

func newFrontalHolder() frontalHolder {
	return frontalHolder{changed: make(chan struct{}), lost: time.Now()}
}

func (f *frontalHolder) set(to *frontal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = to
	close(f.changed)
	f.changed = make(chan struct{})
}

// clear removes from, unless another session has replaced it.
func (f *frontalHolder) clear(from *frontal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == from {
		f.current, f.lost = nil, time.Now()
	}
}

func (f *frontalHolder) currentFrontal() (*frontal, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.changed
}

// frontal returns the current session, or waits for the next if there is none.
func (h *Helper) frontal(ctx context.Context) (*frontal, error) {
	for {
		f, changed := h.home.currentFrontal()
		if f != nil {
			return f, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			h.home.mu.Lock()
			lost := h.home.lost
			h.home.mu.Unlock()
			err := fmt.Errorf("%w: helper %v has had no session with its frontal at %s since %s; is isthmus-frontal running?",
				overlay.ErrNoSession, h.node, h.opts.Frontal, lost.Format(time.TimeOnly))
			if errors.Is(ctx.Err(), context.Canceled) {
				err = ctx.Err()
			}
			return nil, err
		}
	}
}

// addrText formats an address for the log.
func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}
