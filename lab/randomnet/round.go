package randomnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
)

const (
	measureTimeout = 3 * time.Minute
	jobTimeout     = 3 * time.Minute // from the start of the first rank
	jobLasts       = 6 * time.Second // during which new exchanges begin
	idlePeriod     = time.Second     // during which idle daemons may use little processor time
	maxIdleCPU     = 500 * time.Millisecond
)

// Outcome is the result of a seed.
type Outcome struct {
	Network
	OK       bool           `json:"ok"`
	Error    string         `json:"error,omitempty"`
	Seconds  float64        `json:"seconds"` // of the job
	Messages uint64         `json:"messages"`
	Bytes    uint64         `json:"bytes"`
	Paths    map[string]int `json:"links"` // between sites at the end, by technique
	output   string         // output of daemons and ranks, of a failed one
}

// round is a running network.
type round struct {
	Options
	net    Network
	grid   *grid.Grid
	dir    string        // of reports
	there  chan struct{} // closed when all ranks have joined
	output outputLog
}

// play builds the network of a seed, runs the job there and judges it.
func play(ctx context.Context, o Options, seed uint64) Outcome {
	r := &round{Options: o, net: Compose(seed), there: make(chan struct{})}
	out := Outcome{Network: r.net, Paths: map[string]int{}}
	err := r.run(ctx, &out)
	if out.OK = err == nil; !out.OK {
		out.Error, out.output = err.Error(), r.output.String()
	}
	return out
}

func (r *round) run(ctx context.Context, out *Outcome) (err error) {
	l, err := lab.Up(ctx, r.net.spec())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var proxies []string
	for i := range r.net.Proxies {
		proxies = append(proxies, fmt.Sprintf("public/p%d", i+1))
	}
	settings := map[string]map[string]any{}
	for _, p := range proxies {
		if at := l.Host(p); at.Addr6().IsValid() { // sites learn about their IPv6 from a host that has it too
			both := []string{netip.AddrPortFrom(at.Addr(), 443).String(), netip.AddrPortFrom(at.Addr6(), 443).String()}
			settings["proxy "+strings.TrimPrefix(p, "public/")] = map[string]any{"listen": both, "advertise": both}
		}
	}
	r.grid, err = grid.Start(ctx, l, grid.Config{
		Binary: func(daemon string) []string { return r.Program("isthmus", daemon) },
		Broker: "public/broker", Proxies: proxies, Measured: true, Settings: settings, Names: r.net.Names,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.output.daemons(r.grid)
		}
		err = errors.Join(err, r.grid.Close())
	}()
	if err := r.awaitMeasured(ctx); err != nil {
		return err
	}
	if err := r.job(ctx, out); err != nil {
		return err
	}
	return r.checkIdle(ctx)
}

func (r *round) awaitMeasured(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, measureTimeout, fmt.Errorf("not done after %v", measureTimeout))
	defer cancel()
	return r.grid.AwaitMeasured(ctx)
}

// job runs the ranks and the fault.
func (r *round) job(ctx context.Context, out *Outcome) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("the job is not done after %v", jobTimeout))
	defer cancel()
	if r.dir, err = os.MkdirTemp(lab.Dir(), "random-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	self := r.Program()
	start := time.Now()
	all, forget, err := gridjob.Job{
		Grid: r.grid, Self: self, Name: "random", Nodes: r.net.nodes(),
		Argv: r.Program("example", "traffic", "--for", jobLasts.String(), "--max", fmt.Sprint(r.net.Max), "--seed", fmt.Sprint(r.net.Seed), "--json"),
		Env:  []string{"ISTHMUS_REPORT=" + r.dir},
	}.Launchers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forget()) }()
	faulty, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	var first bytes.Buffer
	for i, cmd := range all {
		stdout := io.Writer(io.Discard)
		if i == 0 {
			stdout = &announced{w: &first, word: "ranks are there", then: func() { close(r.there) }}
		}
		cmd.Stdout, cmd.Stderr = stdout, r.output.of(fmt.Sprintf("ranks at launcher %d", i+1))
		work.Go(func() {
			if err := cmd.Run(); err != nil {
				fail(fmt.Errorf("launcher %d: %w", i+1, errors.Join(err, context.Cause(ctx))))
			}
			if i == 0 {
				stop()
			}
		})
	}
	if err := r.happen(faulty); err != nil {
		fail(err)
	}
	work.Wait()
	out.Seconds = time.Since(start).Seconds()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := out.take(first.Bytes()); err != nil {
		return err
	}
	return out.links(r.dir)
}

// take parses the output of rank 0: a line when all have joined, and the totals.
func (out *Outcome) take(said []byte) error {
	_, object, _ := bytes.Cut(said, []byte("\n"))
	var total struct{ Messages, Bytes uint64 }
	if err := json.Unmarshal(object, &total); err != nil {
		return fmt.Errorf("rank 0 said %q: %w", said, err)
	}
	out.Messages, out.Bytes = total.Messages, total.Bytes
	return nil
}

// links counts the links that ranks report, by technique.
func (out *Outcome) links(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			var l struct {
				Technique string
				Dialled   bool
			}
			if err := json.Unmarshal(line, &l); err != nil {
				return fmt.Errorf("report %s: %w", filepath.Base(f), err)
			}
			if l.Dialled {
				out.Paths[l.Technique]++
			}
		}
	}
	return nil
}

// checkIdle checks that no daemon is busy when nothing is left to do.
func (r *round) checkIdle(ctx context.Context) error {
	before := map[*grid.Daemon]time.Duration{}
	for _, d := range r.grid.Daemons() {
		before[d] = grid.ProcessorTime(d.PID())
	}
	if err := sleep.For(ctx, idlePeriod); err != nil {
		return err
	}
	var errs []error
	for d, was := range before {
		if used := grid.ProcessorTime(d.PID()) - was; used > maxIdleCPU {
			errs = append(errs, fmt.Errorf("%s used %v of processor time in %v after the job", d.Name, used, idlePeriod))
		}
	}
	return errors.Join(errs...)
}

// announced forwards what is written, and calls then once word has been written.
type announced struct {
	w    *bytes.Buffer
	word string
	then func()
}

func (a *announced) Write(p []byte) (int, error) {
	a.w.Write(p)
	if a.then != nil && bytes.Contains(a.w.Bytes(), []byte(a.word)) {
		a.then()
		a.then = nil
	}
	return len(p), nil
}

// outputLog collects output by its source.
type outputLog struct {
	mu   sync.Mutex
	text []string
}

// of returns a writer for the output of one source.
func (s *outputLog) of(who string) io.Writer { return speaker{s, who} }

type speaker struct {
	s   *outputLog
	who string
}

func (w speaker) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.text = append(w.s.text, w.who+": "+strings.TrimSpace(string(p)))
	return len(p), nil
}

// lastLines is the number of lines of a daemon's log that are kept.
const lastLines = 20

// daemons adds what daemons logged above level info.
func (s *outputLog) daemons(g *grid.Grid) {
	for _, d := range g.Daemons() {
		var lines []string
		for line := range strings.Lines(d.Log()) {
			if !strings.Contains(line, `"level":"INFO"`) && !strings.Contains(line, `"level":"DEBUG"`) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		for _, line := range lines[max(0, len(lines)-lastLines):] {
			fmt.Fprintln(s.of(d.Name), line)
		}
	}
}

// String returns all output.
func (s *outputLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Clone(s.text), "\n  ")
}
