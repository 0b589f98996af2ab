// Package demo is `isthmus-lab demo`: two closed sites on this machine, joined by
// a broker and a proxy on public hosts, and one job across them. Everything in
// it is real: namespaces with nftables firewalls, the daemons and the ranks as
// processes, 10 ms between any two places. It only builds, starts, watches and
// prints; all that is shown was reported by the job's own ranks and by the
// emulated wide area network.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
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

// program is one program that the job runs, by the words behind
// `isthmus-lab example`.
type program struct {
	title string
	argv  []string
}

var programs = []program{
	{"ping-pong between rank 0 (alpha) and rank 7 (beta)", []string{"pingpong", "--from", "0", "--to", "7"}},
	{"NAS IS, class S", []string{"is", "--class", "S"}},
	{"NAS IS, class W", []string{"is", "--class", "W"}},
	{"NAS EP, class S", []string{"ep", "--class", "S"}},
	{"NAS EP, class W", []string{"ep", "--class", "W"}},
}

// jobTimeout bounds one program, and hostsTimeout the wait until all hosts are listed.
const (
	jobTimeout   = 60 * time.Second
	hostsTimeout = 20 * time.Second
)

// Options of a demo.
type Options struct {
	Program func(words ...string) []string // command line of this binary with these words
	Out     io.Writer
	JSON    bool // print one object per program and link in place of tables
	Full    bool // print what the programs print, and each path, in place of a line for each program and a picture
}

// Run shows the demo. It must run in a process that went through lab.Enter.
// The error says which program failed or which check value is wrong.
func Run(ctx context.Context, o Options) error {
	p := &printer{w: o.Out, json: o.JSON, full: o.Full}
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
		Binary:  func(daemon string) []string { return o.Program("isthmus", daemon) },
		Broker:  "public/broker",
		Proxies: []string{"public/proxy"},
		// However few processors there are, and though the last program may not be all gone.
		Settings: map[string]map[string]any{"helper": {"offer": map[string]any{"jobs": 2, "processes": ranksPerNode}}},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	p.step(fmt.Sprintf("%d daemons", len(g.Daemons())), step)
	self, err := installed(o.Program()[0])
	if err != nil {
		return err
	}
	var failed []error
	p.programs(len(nodes) * ranksPerNode)
	for _, prog := range programs {
		if err := runProgram(ctx, o, self, g, prog, p); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", prog.title, err))
			p.failed(err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	p.picture()
	p.say("\nAll check values are right. %.1f s in all.", time.Since(start).Seconds())
	if !o.Full {
		p.say("--full shows what the programs printed, and each path with its reason.")
	}
	return g.Close()
}

// nodes get the ranks in blocks of ranksPerNode, in this order.
var nodes = []string{"alpha/n1", "alpha/n2", "beta/n1", "beta/n2"}

func runProgram(ctx context.Context, o Options, self string, g *grid.Grid, prog program, p *printer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("not done after %v", jobTimeout))
	defer cancel()
	dir, err := os.MkdirTemp(lab.Dir(), "job-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil { // ranks have accounts of their own
		return err
	}
	p.title(prog.title, len(nodes)*ranksPerNode)
	before := wanTotal(g)
	start := time.Now()
	if err := launch(ctx, o, self, g, prog, dir, p); err != nil {
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

// launch runs a program on all nodes by `isthmus run` at the first, as a user would there.
// The ranks run self, which is on all nodes.
func launch(ctx context.Context, o Options, self string, g *grid.Grid, prog program, dir string, p *printer) error {
	var hosts []string
	for _, node := range nodes {
		site, name := filepath.Split(node)
		hosts = append(hosts, fmt.Sprintf("%s@%s:%d", name, filepath.Clean(site), ranksPerNode))
	}
	words := []string{"isthmus", "run", "--helper", g.Socket(nodes[0]), "--hosts", strings.Join(hosts, ","), "--installed", "--wait", hostsTimeout.String(),
		"--env", "ISTHMUS_REPORT=" + dir, "--", self, "example"}
	argv := o.Program(append(words, prog.argv...)...)
	cmd := g.Lab.Host(nodes[0]).Command(ctx, argv[0], argv[1:]...)
	cmd.Stdout = p.output()
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// installed puts the program at path, which may say "this process" and lie
// where the lab's own file system covers it, where every node sees it under one
// name, and returns that.
func installed(path string) (string, error) {
	own := filepath.Join(lab.Dir(), "isthmus-lab")
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.OpenFile(own, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return own, errors.Join(err, to.Close())
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
