package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/oracle"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/lab/rawcap"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// volume is the number of bytes sent in each direction over every link.
const volume = 200_000

// pairTimeout bounds one try of a cell.
const pairTimeout = 20 * time.Second

const (
	brokerHost = "public/broker"
	proxyHost  = "public/proxy"
	proxyPort  = 443
)

// world is one lab with a grid. A preset has the site askerSite, targetSite or both, of one node
// each, so that a kind can also be paired with itself.
type world struct {
	Options // of the run
	lab     *lab.Lab
	grid    *grid.Grid
	read    int                // bytes of the proxy's log that were accounted for
	recent  map[path]time.Time // the pairs that were connected last, and when that ended
}

func askerSite(preset string) string  { return strings.ReplaceAll(preset, "/", "-") + "-1" }
func targetSite(preset string) string { return strings.ReplaceAll(preset, "/", "-") + "-2" }

// build makes a world with asking and target sites.
func build(ctx context.Context, o Options, part part) (*world, error) {
	spec := lab.Spec{
		IPv6:  o.IPv6,
		WAN:   lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}},
		Sites: []lab.Site{{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}},
	}
	for _, p := range part.from {
		spec.Sites = append(spec.Sites, lab.Site{Name: askerSite(p), Preset: p, Nodes: []string{"n1"}})
	}
	for _, p := range part.to {
		spec.Sites = append(spec.Sites, lab.Site{Name: targetSite(p), Preset: p, Nodes: []string{"n1"}})
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	cfg := o.gridConfig()
	if at := l.Host(proxyHost); o.Measured && at.Addr6().IsValid() {
		// Sites learn about their IPv6 from a host that has it too.
		both := []string{netip.AddrPortFrom(at.Addr(), proxyPort).String(), netip.AddrPortFrom(at.Addr6(), proxyPort).String()}
		cfg.Settings = map[string]map[string]any{"proxy": {"listen": both, "advertise": both}}
	}
	g, err := grid.Start(ctx, l, cfg)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	w := &world{Options: o, lab: l, grid: g}
	if err := errors.Join(w.checkPrivileges(), w.awaitMeasured(ctx)); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (o Options) gridConfig() grid.Config {
	c := grid.Config{
		IPv6: o.IPv6, Binary: o.Binary, Broker: brokerHost, Proxies: []string{proxyHost},
		Measured: o.Measured, Names: o.DualStack,
	}
	if !o.Measured { // sites that measure themselves send packets of their own
		c.Settings = map[string]map[string]any{"frontal": {"measure": "0s"}}
	}
	if o.Unprivileged {
		c.Binary = func(daemon string) []string {
			if daemon == "helper" || daemon == "frontal" {
				return o.Confined(o.Binary(daemon))
			}
			return o.Binary(daemon)
		}
		c.Profile = func(_ string, p overlay.SiteProfile) overlay.SiteProfile {
			p.Privileged = false
			return p
		}
	}
	return c
}

// checkPrivileges checks that the daemons at the sites have, or do not have, the capability that
// the run is about.
func (w *world) checkPrivileges() error {
	for _, d := range w.grid.Daemons() {
		if kind, _, _ := strings.Cut(d.Name, " "); kind != "helper" && kind != "frontal" {
			continue
		}
		held, err := rawcap.Held(d.PID())
		if err != nil {
			return err
		}
		if held == w.Unprivileged {
			return fmt.Errorf("%s: has CAP_NET_RAW: %v; this run is about daemons where that is %v", d.Name, held, !w.Unprivileged)
		}
	}
	return nil
}

func (w *world) close() error { return errors.Join(w.grid.Close(), w.lab.Close()) }

// connect links a site of one kind to a site of another, and again if necessary.
func (w *world) connect(ctx context.Context, pair Pair) Cell {
	known, err := w.facts(pair)
	c := newCell(pair, known)
	c.measured = w.Measured
	if err == nil {
		err = w.predict(ctx, &c)
	}
	if err != nil {
		c.Error = err.Error()
		return c
	}
	for c.Tries < maxTries && ctx.Err() == nil {
		c.Tries++
		w.try(ctx, &c)
		if !c.astray() {
			break
		}
	}
	w.remember(path{w.lab.Place(askerSite(pair.From)), w.lab.Place(targetSite(pair.To))}, time.Now())
	if c.astray() || !c.Connected {
		c.heard = w.heard(ctx, &c)
	}
	return c
}

// recentTime is how long packets between a pair may follow the end of its link. A SYN that a filter held
// back is repeated after 1, 3 and 7 s.
const recentTime = 10 * time.Second

// remember records that a pair was connected until now, and forgets older ones.
func (w *world) remember(p path, now time.Time) {
	if w.recent == nil {
		w.recent = map[path]time.Time{}
	}
	maps.DeleteFunc(w.recent, func(_ path, end time.Time) bool { return now.Sub(end) > recentTime })
	w.recent[p] = now
}

// try makes one link and records everything about it.
func (w *world) try(ctx context.Context, c *Cell) {
	ctx, cancel := context.WithTimeoutCause(ctx, pairTimeout, fmt.Errorf("not done after %v", pairTimeout))
	defer cancel()
	c.Connected, c.Technique, c.Error = false, "", ""
	before := w.lab.Traffic()
	key, err := jobkey.New("matrix")
	if err == nil {
		link := w.link
		if w.Measured {
			link = w.meet
		}
		err = link(ctx, c, key)
	}
	a, b := askerSite(c.From), targetSite(c.To)
	a, b = w.lab.Place(a), w.lab.Place(b)
	strange := strangers(before, w.settle(ctx, a, b), a, b)
	if len(strange) > 0 { // few pairs: it reads a lot
		earlier := w.tunnels()
		for p := range w.recent {
			earlier[p] = true
		}
		forgive(strange, earlier)
	}
	c.addStrangers(strange)
	var relayErr error
	c.ProxyBytes, relayErr = w.relayed(ctx, key.ID(), c.relayed())
	if err = errors.Join(err, relayErr); err != nil {
		c.Error = err.Error()
	}
}

// facts returns the measured facts of a pair under the conditions of the run.
func (o Options) facts(pair Pair) (oracle.Pair, error) {
	between := oracle.Between
	if o.IPv6 {
		between = oracle.OverIPv6
	}
	p, err := between(pair.From, pair.To)
	if o.Unprivileged {
		p = p.Unprivileged()
	}
	return p, err
}

// predict asks the broker for its plan.
func (w *world) predict(ctx context.Context, c *Cell) error {
	s, done, err := w.grid.Admin(ctx, "broker")
	if err != nil {
		return err
	}
	defer done()
	m, err := controlpb.NewAdminClient(s.Conn()).Decide(ctx, &controlpb.DecideRequest{Asker: askerSite(c.From), Target: targetSite(c.To)})
	if err != nil {
		return control.FromStatus(err)
	}
	plan, err := control.PlanFromPB(m)
	if err != nil {
		return err
	}
	for i, s := range plan.Steps {
		if i == 0 {
			c.Predicted = s.Technique.String()
		}
		c.Reasons[s.Technique.String()] = s.Reason
	}
	for _, r := range plan.Rejected {
		c.Reasons[r.Technique.String()] = r.Reason
	}
	return nil
}

// link connects processes of a new job at the two sites and sends data both ways.
func (w *world) link(ctx context.Context, c *Cell, key jobkey.Key) error {
	asker, err := probe.Join(ctx, w.grid, askerSite(c.From)+"/n1", key, 0)
	if err != nil {
		return err
	}
	defer asker.Leave()
	target, err := probe.Join(ctx, w.grid, targetSite(c.To)+"/n1", key, 1)
	if err != nil {
		return err
	}
	defer target.Leave()
	near, far, took, err := probe.Pair(ctx, asker, target)
	if err != nil {
		return err
	}
	defer near.Conn.Close()
	defer far.Conn.Close()
	c.Technique, c.SetupMS = near.Path.Technique.String(), float64(took.Microseconds())/1000
	if err := probe.Exchange(ctx, near, far, volume); err != nil {
		return fmt.Errorf("linked by %v, then: %w", near.Path, err)
	}
	c.Connected = true
	return nil
}

// heard returns the reports to the broker about failed techniques between the two sites. They help
// to explain a fault, but do not excuse it.
func (w *world) heard(ctx context.Context, c *Cell) map[string]string {
	status, err := w.grid.Status(ctx, "broker")
	if err != nil {
		return nil
	}
	var outcomes []struct{ Asker, Target, Technique, Reason string }
	text, err := json.Marshal(status["outcomes"])
	if err != nil || json.Unmarshal(text, &outcomes) != nil {
		return nil
	}
	heard := map[string]string{}
	for _, o := range outcomes {
		if o.Asker == askerSite(c.From) && o.Target == targetSite(c.To) {
			heard[o.Technique] = o.Reason
		}
	}
	return heard
}
