// Package demo is `isthmus demo`: two closed sites on this machine, joined by
// a broker and a proxy on public hosts, and one job across them. Everything in
// it is real: namespaces with nftables firewalls, the daemons and the ranks as
// processes, 10 ms between any two places. It only builds, starts, watches and
// prints; all that is shown was reported by the job's own ranks and by the
// emulated wide area network.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/lab"
)

// spec is the demo's world. Any two places are 10 ms apart, there and back.
const spec = `
wan: {rtt: 10ms}
sites:
  - {name: alpha, preset: stateful, nodes: 2}
  - {name: beta, preset: no-route/egress-443, nodes: 2}
  - {name: public, preset: public, nodes: [broker, proxy]}
`

// ranksPerNode times four nodes is the size of the job.
const ranksPerNode = 2

// program is one thing that the job runs, by the words behind
// `isthmus example`.
type program struct {
	title string
	argv  []string
	check bool // the program checks its own results; its exit status says whether they are right
}

var programs = []program{
	{"ping-pong between rank 0 (alpha) and rank 7 (beta)", []string{"pingpong", "--from", "0", "--to", "7"}, false},
	{"NAS IS, class S", []string{"is", "--class", "S"}, true},
	{"NAS IS, class W", []string{"is", "--class", "W"}, true},
	{"NAS EP, class S", []string{"ep", "--class", "S"}, true},
	{"NAS EP, class W", []string{"ep", "--class", "W"}, true},
}

// jobTimeout bounds one program.
const jobTimeout = 60 * time.Second

// Options of a demo.
type Options struct {
	Program func(words ...string) []string // command line of this binary with these words
	Out     io.Writer
	JSON    bool // print one object per program and link in place of tables
}

// Run shows the demo. It must run in a process that went through lab.Enter.
// The error says which program failed or which check value is wrong.
func Run(ctx context.Context, o Options) error {
	p := &printer{w: o.Out, json: o.JSON}
	start := time.Now()
	world, err := lab.Parse("demo", []byte(spec))
	if err != nil {
		return err
	}
	p.say("Two closed sites on this machine, 10 ms from anything else:")
	p.say("  alpha  lets connections out and none in; nodes n1 and n2")
	p.say("  beta   lets only port 443 out, and its nodes n1 and n2 have no route out at all")
	l, err := lab.Up(ctx, world)
	if err != nil {
		return err
	}
	defer l.Close()
	p.step("sites, firewalls and wide area network", start)
	step := time.Now()
	g, err := grid.Start(ctx, l, grid.Config{
		Binary:  func(daemon string) []string { return o.Program(daemon) },
		Broker:  "public/broker",
		Proxies: []string{"public/proxy"},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	p.step(fmt.Sprintf("%d daemons", len(g.Daemons())), step)
	var failed []error
	for _, prog := range programs {
		if err := runProgram(ctx, o, g, prog, p); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", prog.title, err))
			p.say("  FAILED: %v", err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	p.say("\nAll check values are right. %.1f s in all.", time.Since(start).Seconds())
	return g.Close()
}

// placement of the ranks: blocks of ranksPerNode over the nodes in order.
var nodes = []string{"alpha/n1", "alpha/n2", "beta/n1", "beta/n2"}

func runProgram(ctx context.Context, o Options, g *grid.Grid, prog program, p *printer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("not done after %v", jobTimeout))
	defer cancel()
	key, err := jobkey.New(prog.argv[0])
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(lab.Dir(), "job-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	keyFile := filepath.Join(dir, "job.key")
	if err := os.WriteFile(keyFile, []byte(key.String()), 0o600); err != nil {
		return err
	}
	p.title(prog.title, len(nodes)*ranksPerNode)
	before := wanTotal(g)
	start := time.Now()
	if err := runNodes(ctx, o, g, prog, keyFile, dir, p); err != nil {
		return err
	}
	elapsed := time.Since(start)
	reports, err := readReports(dir)
	if err != nil {
		return err
	}
	p.links(prog.title, reports)
	p.traffic(prog.title, sumReports(reports), wanTotal(g).minus(before), elapsed)
	return nil
}

// runNodes runs each node's share by `isthmus run` there, as a user would.
func runNodes(ctx context.Context, o Options, g *grid.Grid, prog program, keyFile, dir string, p *printer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	out := &lockedWriter{w: p.output()}
	for i, node := range nodes {
		first := i * ranksPerNode
		words := []string{"run", "--key", keyFile, "--size", fmt.Sprint(len(nodes) * ranksPerNode),
			"--ranks", fmt.Sprintf("%d-%d", first, first+ranksPerNode-1), "--helper", g.Socket(node), "--label", node, "--"}
		argv := append(o.Program(words...), o.Program(append([]string{"example"}, prog.argv...)...)...)
		cmd := g.Lab.Host(node).Command(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "ISTHMUS_REPORT="+dir)
		cmd.Stdout, cmd.Stderr = out, out
		running.Go(func() {
			if err := cmd.Run(); err != nil {
				fail(fmt.Errorf("the ranks on %s: %w", node, err)) // the others would wait for these
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// lockedWriter lets several commands share an output, line by line as they
// write it.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// report is one line of a rank's report: one link as the rank saw it.
type report struct {
	Rank             int     `json:"rank"`
	Peer             int     `json:"peer"`
	Dialled          bool    `json:"dialled"`
	PeerNode         string  `json:"peer_node"`
	Technique        string  `json:"technique"`
	Via              string  `json:"via"`
	Proxy            string  `json:"proxy"`
	Cipher           string  `json:"cipher"`
	Reason           string  `json:"reason"`
	SetupMS          float64 `json:"setup_ms"`
	RTTMS            float64 `json:"rtt_ms"`
	MessagesSent     uint64  `json:"messages_sent"`
	BytesSent        uint64  `json:"bytes_sent"`
	MessagesReceived uint64  `json:"messages_received"`
	BytesReceived    uint64  `json:"bytes_received"`
}

func nodeOf(rank int) string { return nodes[rank/ranksPerNode] }

func (r report) crossesSites() bool { return siteOf(nodeOf(r.Rank)) != siteOf(nodeOf(r.Peer)) }

func siteOf(node string) string { site, _ := filepath.Split(node); return site }

// readReports reads what the ranks left in dir.
func readReports(dir string) ([]report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if want := len(nodes) * ranksPerNode; len(files) != want {
		return nil, fmt.Errorf("%d of %d ranks left a report", len(files), want)
	}
	var all []report
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(f); ; {
			var r report
			if err = d.Decode(&r); err != nil {
				break
			}
			all = append(all, r)
		}
		f.Close()
		if !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// totals of what crossed between sites.
type totals struct{ Messages, Bytes, Packets uint64 }

func (t totals) minus(u totals) totals {
	return totals{t.Messages - u.Messages, t.Bytes - u.Bytes, t.Packets - u.Packets}
}

// sumReports adds up the messages that ranks sent to other sites.
func sumReports(all []report) (t totals) {
	for _, r := range all {
		if r.crossesSites() {
			t.Messages += r.MessagesSent
			t.Bytes += r.BytesSent
		}
	}
	return t
}

// wanTotal adds up what the sites sent into the wide area network.
func wanTotal(g *grid.Grid) (t totals) {
	for _, c := range g.Lab.Traffic() {
		if g.Preset(c.From) != "" {
			t.Packets += c.Packets
			t.Bytes += c.Bytes
		}
	}
	return t
}
