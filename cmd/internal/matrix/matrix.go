// Package matrix is `isthmus lab matrix`: it builds two sites of each kind of
// firewall, runs a whole grid over them, connects every ordered pair of kinds,
// and holds what happened against what the broker said beforehand and what the
// emulated internet counted. It judges; it does not decide or connect.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/lab"
	"github.com/isthmus-grid/isthmus/internal/lab/wan"
	"github.com/isthmus-grid/isthmus/link/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Options of a run.
type Options struct {
	Presets []string
	RTT     time.Duration // between any two places
	Binary  func(daemon string) []string
	JSON    bool // one object per pair in place of the grid
	Out     io.Writer
	Err     io.Writer // progress
}

// Cell is the outcome for one ordered pair of presets.
type Cell struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Connected bool   `json:"connected"`
	Technique string `json:"technique"`
	Predicted string `json:"predicted"`

	// DirectPossible reports whether the broker's plan has a technique that
	// needs no relay.
	DirectPossible bool `json:"direct_possible"`

	SetupMS float64 `json:"setup_ms"` // from the dial to the authenticated link, at the dialler

	// ProxyBytes is what the proxy relayed for the pair, by its own account;
	// ThirdPartyPackets what the wide area network carried between the two
	// sites and anybody but each other, the broker and the proxies.
	ProxyBytes        uint64 `json:"proxy_bytes"`
	ThirdPartyPackets uint64 `json:"third_party_packets"`

	Reasons map[string]string `json:"reasons"` // for every technique, taken or left out
	Error   string            `json:"error"`
}

// Fault says what is wrong with the cell, or "".
func (c Cell) Fault() string {
	var faults []string
	if !c.Connected {
		faults = append(faults, "not connected: "+c.Error)
	}
	if c.Connected && c.Technique != c.Predicted {
		faults = append(faults, fmt.Sprintf("connected by %s, predicted was %s", c.Technique, c.Predicted))
	}
	if c.Technique != overlay.Relay.String() && c.ProxyBytes > 0 {
		faults = append(faults, fmt.Sprintf("%d bytes went to the proxy", c.ProxyBytes))
	}
	if c.Technique == overlay.Relay.String() && c.ProxyBytes < 2*volume {
		faults = append(faults, fmt.Sprintf("only %d bytes went to the proxy", c.ProxyBytes))
	}
	if c.ThirdPartyPackets > 0 {
		faults = append(faults, fmt.Sprintf("%d packets to third parties", c.ThirdPartyPackets))
	}
	if len(c.Reasons) != len(overlay.Techniques()) {
		faults = append(faults, fmt.Sprintf("reasons for %d of %d techniques", len(c.Reasons), len(overlay.Techniques())))
	}
	return strings.Join(faults, "; ")
}

// volume is what is sent each way over every link, in bytes.
const volume = 200_000

// pairTimeout bounds one cell.
const pairTimeout = 20 * time.Second

const (
	brokerHost = "public/broker"
	proxyHost  = "public/proxy"
)

// world is one lab with a grid: for each preset the sites askerSite and
// targetSite, of one node each, so that a kind can also meet itself.
type world struct {
	lab  *lab.Lab
	grid *grid.Grid
	rtt  time.Duration
	read int // bytes of the proxy's log that were accounted for
}

func askerSite(preset string) string  { return strings.ReplaceAll(preset, "/", "-") + "-1" }
func targetSite(preset string) string { return strings.ReplaceAll(preset, "/", "-") + "-2" }

func build(ctx context.Context, o Options) (*world, error) {
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}},
		Sites: []lab.Site{{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}},
	}
	for _, p := range o.Presets {
		for _, name := range []string{askerSite(p), targetSite(p)} {
			spec.Sites = append(spec.Sites, lab.Site{Name: name, Preset: p, Nodes: []string{"n1"}})
		}
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	g, err := grid.Start(ctx, l, grid.Config{
		Binary: o.Binary, Broker: brokerHost, Proxies: []string{proxyHost},
		// Sites that measure themselves send packets of their own.
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}},
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &world{lab: l, grid: g, rtt: o.RTT}, nil
}

func (w *world) close() error { return errors.Join(w.grid.Close(), w.lab.Close()) }

// Run connects every ordered pair and prints the outcome. The error names the
// pairs that did not do what they should.
func Run(ctx context.Context, o Options) (err error) {
	start := time.Now()
	fmt.Fprintf(o.Err, "building %d sites ...\n", 2*len(o.Presets))
	w, err := build(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var cells []Cell
	var faults []string
	for i, from := range o.Presets {
		for j, to := range o.Presets {
			fmt.Fprintf(o.Err, "\r%d/%d pairs  %s -> %s\x1b[K", i*len(o.Presets)+j, len(o.Presets)*len(o.Presets), from, to)
			c := w.connect(ctx, from, to)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			cells = append(cells, c)
			if f := c.Fault(); f != "" {
				faults = append(faults, fmt.Sprintf("%s -> %s: %s", from, to, f))
			}
			if o.JSON {
				if err := json.NewEncoder(o.Out).Encode(c); err != nil {
					return err
				}
			}
		}
	}
	fmt.Fprintf(o.Err, "\r%d pairs in %.1f s\x1b[K\n", len(cells), time.Since(start).Seconds())
	if !o.JSON {
		printGrid(o, cells)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%d of %d pairs are not as they should be:\n  %s", len(faults), len(cells), strings.Join(faults, "\n  "))
	}
	return nil
}

// connect makes one link from a site of one kind to a site of another.
func (w *world) connect(ctx context.Context, from, to string) Cell {
	ctx, cancel := context.WithTimeoutCause(ctx, pairTimeout, fmt.Errorf("not done after %v", pairTimeout))
	defer cancel()
	c := Cell{From: from, To: to, Reasons: map[string]string{}}
	a, b := askerSite(from), targetSite(to)
	before := w.lab.Traffic()
	err := w.predict(ctx, a, b, &c)
	if err == nil {
		err = w.link(ctx, a, b, &c)
	}
	if err != nil {
		c.Error = err.Error()
	}
	c.count(before, w.settle(ctx, a, b), a, b)
	if c.ProxyBytes, err = w.relayed(ctx, c.Technique == overlay.Relay.String()); err != nil && c.Error == "" {
		c.Error = err.Error()
	}
	return c
}

// relayed returns how many bytes the proxy relayed since it was asked last. It
// accounts for a link when both ends have closed it, so a link that is expected
// is waited for.
func (w *world) relayed(ctx context.Context, expected bool) (n uint64, err error) {
	for {
		log := w.grid.Daemon("proxy proxy").Log()
		for line := range strings.Lines(log[w.read:]) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			w.read += len(line)
			var entry struct {
				Msg  string `json:"msg"`
				Sent uint64 `json:"sent"`
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				return n, fmt.Errorf("log of the proxy: %w in %q", err, line)
			}
			if entry.Msg == "link ended" { // one for each end, with what that end sent
				n += entry.Sent
			}
		}
		if n > 0 || !expected {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return n, nil
		case <-time.After(5 * time.Millisecond): // a log announces nothing
		}
	}
}

// settle returns the emulator's counters once nothing of the link is on its
// way any more, so that its last segments are not taken for the next pair's.
// Nothing announces that; what has been still for some round trips is over.
func (w *world) settle(ctx context.Context, a, b string) []wan.Counter {
	for {
		before := w.lab.Traffic()
		select {
		case <-time.After(3*w.rtt + 5*time.Millisecond):
		case <-ctx.Done():
			return w.lab.Traffic()
		}
		after := w.lab.Traffic()
		still := slices.EqualFunc(before, after, func(x, y wan.Counter) bool {
			ours := ofSite(x.From, a) || ofSite(x.From, b) || ofSite(x.To, a) || ofSite(x.To, b)
			control := x.From == brokerHost || x.To == brokerHost
			return x.Packets == y.Packets || !ours || control
		})
		if still {
			return after
		}
	}
}

// predict asks the broker for its plan.
func (w *world) predict(ctx context.Context, a, b string, c *Cell) error {
	s, done, err := w.grid.Admin(ctx, "broker")
	if err != nil {
		return err
	}
	defer done()
	m, err := controlpb.NewAdminClient(s.Conn()).Decide(ctx, &controlpb.DecideRequest{Asker: a, Target: b})
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
		c.DirectPossible = c.DirectPossible || s.Technique != overlay.Relay
		c.Reasons[s.Technique.String()] = s.Reason
	}
	for _, r := range plan.Rejected {
		c.Reasons[r.Technique.String()] = r.Reason
	}
	return nil
}

// link connects the two sites and sends data both ways.
func (w *world) link(ctx context.Context, a, b string, c *Cell) error {
	key, err := jobkey.New("matrix")
	if err != nil {
		return err
	}
	asker, err := probe.Join(ctx, w.grid, a+"/n1", key, 0)
	if err != nil {
		return err
	}
	defer asker.Leave()
	target, err := probe.Join(ctx, w.grid, b+"/n1", key, 1)
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

// count compares the emulator's counters from before and after.
func (c *Cell) count(before, after []wan.Counter, a, b string) {
	old := map[[2]string]wan.Counter{}
	for _, t := range before {
		old[[2]string{t.From, t.To}] = t
	}
	friends := map[string]bool{a: true, b: true, a + "/proxy": true, b + "/proxy": true, brokerHost: true, proxyHost: true}
	for _, t := range after {
		was := old[[2]string{t.From, t.To}]
		packets := t.Packets - was.Packets
		near, far := t.From, t.To
		if !ofSite(near, a) && !ofSite(near, b) {
			near, far = far, near
		}
		if !ofSite(near, a) && !ofSite(near, b) {
			continue // nothing to do with this pair
		}
		if !friends[far] {
			c.ThirdPartyPackets += packets
		}
	}
}

func ofSite(endpoint, site string) bool { return endpoint == site || endpoint == site+"/proxy" }

// printGrid prints the techniques as a table, a row for each asker.
func printGrid(o Options, cells []Cell) {
	tw := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "from \\ to")
	for _, to := range o.Presets {
		fmt.Fprintf(tw, "\t%s", to)
	}
	fmt.Fprintln(tw)
	for i, c := range cells {
		if i%len(o.Presets) == 0 {
			fmt.Fprint(tw, c.From)
		}
		text := fmt.Sprintf("%s %.0f ms", c.Technique, c.SetupMS)
		if c.Fault() != "" {
			text = "WRONG"
		}
		fmt.Fprintf(tw, "\t%s", text)
		if (i+1)%len(o.Presets) == 0 {
			fmt.Fprintln(tw)
		}
	}
	tw.Flush()
}
