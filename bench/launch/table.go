package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/plot"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
)

// TableOptions are the parameters of the experiment with the paper's allocation table.
type TableOptions struct {
	Sizes   []int  // ranks, ascending
	Copies  []int  // of each rank; jobs with more processes than the peers can run are skipped
	Scale   int    // 1: all 350 hosts; k: every k-th, and sizes divided by k
	Figures string // folder for two PNG files; empty: none
	Binary  func(daemon string) []string
	JSON    bool
	Out     io.Writer
	Err     io.Writer // progress
}

// TableSizes are those of the paper's Fig. 2 and 3.
var TableSizes = []int{100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600}

// settle is the duration of the first rounds of pings.
const settle = 20 * time.Second

// tries is the maximum number of launches of a job that fails because a busy machine does not
// reach hundreds of peers in time.
const tries = 3

// strategies, in the order of the paper's figures.
var strategies = []string{"concentrate", "spread"}

// Table launches a job of each size with both strategies on the peers of six sites, and compares
// the places of its processes with the result of the paper's algorithms. The process must have
// called lab.Enter. A process at another place misses the figure's target and is no error; a
// failed job is one, after the others.
func Table(ctx context.Context, o TableOptions) error {
	t := &table{o: o, lines: map[string]*lineSet{}}
	err := t.measure(ctx)
	if ctx.Err() != nil || len(t.rows) == 0 {
		return err
	}
	return errors.Join(err, bench.Write(o.Out, o.JSON, t.rows...), t.draw())
}

// MeasureTable is Table without printing and drawing.
func MeasureTable(ctx context.Context, o TableOptions) ([]bench.Row, error) {
	t := &table{o: o, lines: map[string]*lineSet{}}
	err := t.measure(ctx)
	return t.rows, err
}

// measure launches all jobs.
func (t *table) measure(ctx context.Context) (err error) {
	o := t.o
	start := time.Now()
	nodes, settings := peers(o.Scale)
	g, down, err := grid.Up(ctx, spec(), grid.Config{Binary: o.Binary, Peers: nodes, Settings: settings})
	if err != nil {
		return err
	}
	t.g = g
	defer func() { err = errors.Join(err, down()) }()
	fmt.Fprintf(o.Err, "%d peers at %d sites are up after %v\n", len(Hosts(o.Scale)), len(sites()), time.Since(start).Round(time.Second))
	start = time.Now()
	submitter := clusters[0].node(0).Key()
	if _, err := awaitHosts(ctx, g, submitter, len(Hosts(o.Scale))); err != nil {
		return err
	}
	time.Sleep(settle) // no job may rely on a single ping
	rtts, err := awaitHosts(ctx, g, submitter, len(Hosts(o.Scale)))
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "%s knows how far they are after %v; the nearest, middle and farthest of each site:", submitter, time.Since(start).Round(10*time.Millisecond))
	for _, site := range sites() {
		all := rtts[site]
		fmt.Fprintf(o.Err, " %s %v %v %v", site, all[0].Round(time.Microsecond), all[len(all)/2].Round(time.Microsecond), all[len(all)-1].Round(time.Microsecond))
	}
	fmt.Fprintln(o.Err)
	var failed []error // of jobs; the other jobs are still reported
	for _, strategy := range strategies {
		for _, copies := range o.Copies {
			for _, n := range o.Sizes {
				if n/o.Scale*copies > capacity(o.Scale) {
					continue
				}
				if err := t.size(ctx, strategy, n/o.Scale, copies); err != nil {
					failed = append(failed, err)
				}
				if ctx.Err() != nil {
					return errors.Join(append(failed, context.Cause(ctx))...)
				}
			}
		}
	}
	return errors.Join(failed...)
}

type table struct {
	o     TableOptions
	g     *grid.Grid
	rows  []bench.Row
	lines map[string]*lineSet // by strategy and site, of jobs without further copies
}

// lineSet is the lines of one site in a figure.
type lineSet struct{ n, hosts []float64 }

// point adds a point to a line.
func (t *table) point(key string, n, hosts int) {
	if t.lines[key] == nil {
		t.lines[key] = &lineSet{}
	}
	set := t.lines[key]
	set.n, set.hosts = append(set.n, float64(n)), append(set.hosts, float64(hosts))
}

// size runs one job and compares.
func (t *table) size(ctx context.Context, strategy string, n, copies int) error {
	want, err := expected(t.o.Scale, n, copies, strategy)
	if err != nil {
		return err
	}
	node := clusters[0].node(0).Key()
	words := []string{"-n", strconv.Itoa(n), "-a", strategy}
	if copies > 1 {
		words = append(words, "-r", strconv.Itoa(copies), "--independent")
	}
	words = append(words, "hostname")
	var lines []gridjob.Line
	var took time.Duration
	try := 1
	for ; ; try++ {
		if lines, took, err = gridjob.Submit(ctx, t.g, t.o.Binary("run"), node, "nancy/peers", words...); err == nil && len(lines) != n*copies {
			err = fmt.Errorf("%s: %d of %d processes printed a line", strategy, len(lines), n*copies)
		}
		if err == nil {
			break
		}
		fmt.Fprintf(t.o.Err, "try %d: %v\n", try, err)
		if try == tries || ctx.Err() != nil {
			return err
		}
	}
	got := shares(lines)
	var text []string
	for _, site := range sites() {
		if copies == 1 {
			t.point(strategy+" "+site, n, got[site].hosts)
		}
		text = append(text, fmt.Sprintf("%s %d/%d", site, got[site].hosts, got[site].processes))
		for _, f := range []struct {
			figure    string
			got, want int
		}{{"hosts", got[site].hosts, want[site].hosts}, {"processes", got[site].processes, want[site].processes}} {
			t.rows = append(t.rows, bench.Row{
				Bench: "launch", Figure: f.figure, Unit: f.figure, Value: float64(f.got),
				Params: map[string]any{"strategy": strategy, "n": n, "r": copies, "site": site, "peers": len(Hosts(t.o.Scale))},
			}.Within(float64(f.want), 0))
		}
	}
	t.rows = append(t.rows, bench.Row{
		Bench: "launch", Figure: "job", Unit: "ms", Value: float64(took.Milliseconds()),
		Params: map[string]any{"strategy": strategy, "n": n, "r": copies, "peers": len(Hosts(t.o.Scale)), "try": try},
	})
	fmt.Fprintf(t.o.Err, "%s %d x %d in %v: %s\n", strategy, n, copies, took.Round(time.Millisecond), strings.Join(text, ", "))
	return nil
}

// shares counts hosts and processes of each site in the output of a job's processes.
func shares(lines []gridjob.Line) map[string]share {
	got := map[string]share{}
	seen := map[string]bool{}
	for _, l := range lines {
		site, _, _ := strings.Cut(l.Host, "/")
		s := got[site]
		s.processes++
		if !seen[l.Host] {
			seen[l.Host] = true
			s.hosts++
		}
		got[site] = s
	}
	return got
}

// draw writes the figures: hosts of each site over the size of the job, as in the paper's Fig. 2
// and 3.
func (t *table) draw() error {
	if t.o.Figures == "" {
		return nil
	}
	if err := os.MkdirAll(t.o.Figures, 0o755); err != nil {
		return err
	}
	for _, strategy := range strategies {
		f := plot.Figure{
			Title: fmt.Sprintf("%s: %d peers, job submitted at nancy", strategy, len(Hosts(t.o.Scale))),
			X:     plot.Axis{Label: "processes", Whole: true}, Y: plot.Axis{Label: "hosts used"},
		}
		for _, site := range sites() {
			set := t.lines[strategy+" "+site]
			if set == nil {
				continue // no job ended well
			}
			f.Lines = append(f.Lines, plot.Line{Name: site, X: set.n, Y: set.hosts})
		}
		if len(f.Lines) == 0 {
			continue
		}
		if err := f.WriteFile(fmt.Sprintf("%s/launch-%s.png", t.o.Figures, strategy)); err != nil {
			return err
		}
	}
	return nil
}
