package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

// load is the frontals and the processes behind them.
type load struct {
	frontals  []*frontal
	processes []overlay.AccessPoint
}

// frontal is one site's session with the broker.
type frontal struct {
	site      overlay.SiteID
	end       *control.Endpoint
	session   *control.Session
	directory controlpb.DirectoryClient
	plans     []uint64 // digests of the plans that the site knows
}

// perJob is the number of processes in one job; its ranks go round the sites.
const perJob = 1000

// newLoad opens and joins all sessions.
func newLoad(ctx context.Context, b *process, o Options) (*load, error) {
	l := &load{}
	for i := range o.Sites {
		f, err := newFrontal(ctx, b, overlay.SiteID(fmt.Sprintf("site%02d", i)), i%2 == 0)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("bench broker: session %d: %w", i, err)
		}
		l.frontals = append(l.frontals, f)
	}
	var key jobkey.Key
	for i := range o.Processes {
		if i%perJob == 0 {
			var err error
			if key, err = jobkey.New(fmt.Sprintf("bench%d", i/perJob)); err != nil {
				l.close()
				return nil, err
			}
		}
		p := overlay.AccessPoint{
			Process:    overlay.ProcessName{Job: key.ID(), Rank: uint32(i % perJob)},
			Generation: 1,
			Node:       overlay.NodeID{Site: l.frontals[i%o.Sites].site, Name: fmt.Sprintf("node%d", i/o.Sites)},
			Local:      netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i % o.Sites), byte(i >> 8), byte(i)}), 20000),
			Public:     netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 20000),
		}
		p.Proof = string(key.Auth().Prove(p.Process, p.Generation, p.Node))
		l.processes = append(l.processes, p)
	}
	return l, nil
}

// policy permits the sites all links.
const policy = "contact: bench\nrules:\n- {name: all, effect: allow}\n"

// newFrontal opens a session and joins the site, open or closed.
func newFrontal(ctx context.Context, b *process, site overlay.SiteID, open bool) (*frontal, error) {
	creds, err := b.ca.Credentials(control.Identity{Role: control.RoleFrontal, Site: site})
	if err != nil {
		return nil, err
	}
	f := &frontal{site: site, end: control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)}
	if f.session, err = f.end.Dial(ctx, control.DialConfig{Addr: b.addr, Role: control.RoleBroker}); err != nil {
		f.end.Close()
		return nil, err
	}
	f.directory = controlpb.NewDirectoryClient(f.session.Conn())
	networks := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	profile := overlay.SiteProfile{Site: site, Filter: overlay.FilterStateful, Networks: networks}
	if open {
		profile = overlay.SiteProfile{Site: site, Inbound: overlay.InboundOpen, Networks: networks}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := controlpb.NewSitesClient(f.session.Conn()).Join(ctx, &controlpb.JoinRequest{Profile: control.ProfileToPB(profile), Policy: []byte(policy)}); err != nil {
		f.close()
		return nil, control.FromStatus(err)
	}
	return f, nil
}

func (f *frontal) close() {
	f.session.Close()
	f.end.Close()
}

func (l *load) close() {
	for _, f := range l.frontals {
		f.close()
	}
}

// inOneCall is how many processes are registered in one call, of at most 64 KiB.
const inOneCall = 200

// register registers all processes, each site's one call after the other, as a frontal does with a new session.
// Then each site asks once for a process of every other site, so that it knows the plans.
func (l *load) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	points := make(map[overlay.SiteID][]*controlpb.AccessPoint)
	for _, p := range l.processes {
		points[p.Node.Site] = append(points[p.Node.Site], control.RegistrationToPB(p))
	}
	for _, f := range l.frontals {
		for some := range slices.Chunk(points[f.site], inOneCall) {
			resp, err := f.directory.Register(ctx, &controlpb.RegisterRequest{Points: some})
			if err != nil {
				return fmt.Errorf("bench broker: register: %w", control.FromStatus(err))
			}
			if len(resp.Faults) > 0 {
				return fmt.Errorf("bench broker: register: %w", control.FaultErr(resp.Faults[0]))
			}
		}
	}
	for _, f := range l.frontals {
		if err := l.learn(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) learn(ctx context.Context, f *frontal) error {
	resp, err := f.directory.Resolve(ctx, l.questions(min(len(l.frontals), len(l.processes)), func(i int) int { return i }))
	if err != nil {
		return fmt.Errorf("bench broker: learn the plans: %w", control.FromStatus(err))
	}
	for _, p := range resp.Plans {
		f.plans = append(f.plans, p.Digest)
	}
	return nil
}

// questions returns a call for n processes, which pick numbers.
func (l *load) questions(n int, pick func(i int) int) *controlpb.ResolveRequest {
	req := &controlpb.ResolveRequest{}
	for i := range n {
		req.Questions = append(req.Questions, &controlpb.Question{Process: control.ProcessToPB(l.processes[pick(i)].Process)})
	}
	return req
}

// ask makes all frontals ask for random processes for the duration d, and returns the number of
// answers.
func (l *load) ask(ctx context.Context, way way, d time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d+patience)
	defer cancel()
	end := time.Now().Add(d)
	var answers atomic.Int64
	var callers sync.WaitGroup
	failed := make(chan error, len(l.frontals)*way.callers)
	for i, f := range l.frontals {
		for j := range way.callers {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for time.Now().Before(end) {
					if err := l.askOnce(ctx, f, way.batch, rng); err != nil {
						failed <- err
						return
					}
					answers.Add(int64(way.batch))
				}
			})
		}
	}
	callers.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return answers.Load(), nil
	}
}

// askOnce makes one call and checks that every answer belongs to its question.
func (l *load) askOnce(ctx context.Context, f *frontal, batch int, rng *rand.Rand) error {
	req := l.questions(batch, func(int) int { return rng.IntN(len(l.processes)) })
	req.CachedPlans = f.plans
	resp, err := f.directory.Resolve(ctx, req)
	if err != nil {
		return fmt.Errorf("bench broker: resolve: %w", control.FromStatus(err))
	}
	if len(resp.Answers) != batch || len(resp.Plans) != 0 {
		return fmt.Errorf("bench broker: %d answers and %d plans for %d questions", len(resp.Answers), len(resp.Plans), batch)
	}
	for i, a := range resp.Answers {
		got, want := a.GetPoint().GetProcess(), req.Questions[i].Process
		if a.Fault != nil || got.GetRank() != want.Rank || got.GetJob() != want.Job {
			return fmt.Errorf("bench broker: asked for %v, the answer is %v", want, a)
		}
	}
	return nil
}
