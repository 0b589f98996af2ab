package apps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/examples/ray2mesh/farm"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// Ray2mesh is a sweep over the number of processes, in both patterns.
type Ray2mesh struct {
	Bed
	Sites     int
	Processes []int // ascending
	Rays      int
	Chunk     int
	Credit    int     // maximum number of chunks at a worker
	Speed     float64 // rays per second of a processor
	Handling  float64 // of the program
	Profile   bool    // submit each job with a job profile of a group for each site, in place of choosing its nodes here
	Brief     bool    // both patterns on all numbers of processes, and other lines only on the most
	Repeat    int
}

// The lines of the figures.
const (
	lineVanilla = "vanilla"
	lineBosses  = "hierarchical"
	lineUncount = "hierarchical, bosses not counted"
	lineFlat    = "vanilla, flat collectives"
	lineGrid    = "vanilla, collectives by sites"
	lineSites   = "hierarchical, by sites"
)

// flat forces collective calls that do not know of sites.
const flat = "ISTHMUS_COLL=bcast=binomial,allreduce=recursive-doubling,gather=linear"

// Check returns what is wrong with the sweep, or nil.
func (s Ray2mesh) Check() error {
	switch {
	case len(s.Processes) == 0 || slices.Min(s.Processes) < 2 || !slices.IsSorted(s.Processes):
		return fmt.Errorf("numbers of processes %v; want some, ascending from 2 or more", s.Processes)
	case s.Sites < 1 || s.Sites > s.Processes[0]:
		return fmt.Errorf("%d sites for %d processes; want one to as many", s.Sites, s.Processes[0])
	case s.Profile && slices.ContainsFunc(s.Processes, func(n int) bool { return n < 2*s.Sites || n%s.Sites != 0 }):
		return fmt.Errorf("numbers of processes %v on %d sites with a profile; want multiples, from two at each site", s.Processes, s.Sites)
	case s.Rays < 1 || s.Chunk < 1 || s.Chunk > s.Rays || s.Credit < 1 || s.Repeat < 1 || !(s.Speed >= 0 && s.Handling >= 0):
		return fmt.Errorf("%d rays in chunks of %d, %d at a worker, %d runs, %g rays a second, handling %g; want one or more of each, and no less than 0", s.Rays, s.Chunk, s.Credit, s.Repeat, s.Speed, s.Handling)
	}
	return nil
}

// Run builds the sites, sweeps and prints the rows. The process must have called lab.Enter.
func (s Ray2mesh) Run(ctx context.Context) error {
	rows, err := s.Measure(ctx)
	if err != nil {
		return err
	}
	return bench.Write(s.Out, s.JSON, rows...)
}

// Measure is Run without printing.
func (s Ray2mesh) Measure(ctx context.Context) ([]bench.Row, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	sweeps := [][]int{s.Processes}
	if s.Profile { // the room on the hosts depends on the number of processes
		sweeps = nil
		for i := range s.Processes {
			sweeps = append(sweeps, s.Processes[i:i+1])
		}
	}
	var all []point
	for _, numbers := range sweeps {
		err := s.on(ctx, numbers[0], func(g *grid.Grid) error {
			for _, processes := range numbers {
				fmt.Fprintf(s.Err, "ray2mesh: %d rays on %d processes\n", s.Rays, processes)
				some, err := s.measure(ctx, g, processes, len(all) == 0)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := agree(all); err != nil {
		return nil, err
	}
	return s.rows(all), nil
}

// on runs f on the sites. With profiles each has room for one group of a job of this many processes,
// bosses not counted, and not for two.
func (s Ray2mesh) on(ctx context.Context, processes int, f func(*grid.Grid) error) error {
	if !s.Profile {
		return s.onSites(ctx, s.spec(s.Sites), f)
	}
	room := processes/s.Sites + 1
	offer := map[string]any{"jobs": 1, "processes": room, "cpu": room}
	return s.onGrid(ctx, s.spec(s.Sites), map[string]map[string]any{"helper": {"offer": offer}}, f)
}

// job runs the program on so many processes.
func (s Ray2mesh) job(ctx context.Context, g *grid.Grid, processes int, args ...string) ([]farm.Result, error) {
	if !s.Profile {
		return Example[farm.Result](ctx, s.Bed, g, spread(processes, s.Sites), "ray2mesh", args...)
	}
	file := filepath.Join(lab.Dir(), fmt.Sprintf("ray2mesh-%d.xml", processes))
	if err := os.WriteFile(file, []byte(s.profile(processes)), 0o600); err != nil {
		return nil, err
	}
	results, err := submitted[farm.Result](ctx, s.Bed, g, file, "ray2mesh", args...)
	return results, errors.Join(err, os.Remove(file))
}

// profile returns the job profile of so many processes, in the form of the article's figure 3: a group for
// each site, near each other inside.
func (s Ray2mesh) profile(processes int) string {
	var b strings.Builder
	b.WriteString(`<grmsJob appId="ray2mesh"><resourceTemplates><networkResourceTemplate templateId="net-local">` +
		`<networkParameter name="latency"><max>5</max></networkParameter></networkResourceTemplate></resourceTemplates>` +
		`<task taskId="trace"><resourcesDescription><topology>`)
	for i := range s.Sites {
		count := (i+1)*processes/s.Sites - i*processes/s.Sites
		fmt.Fprintf(&b, `<group groupId="group%d"><processes><processesCount>%d</processesCount></processes>`, i+1, count)
		b.WriteString(`<processesConnection><networkResource><templateIdReference templateId="net-local"/></networkResource></processesConnection></group>`)
	}
	b.WriteString(`</topology></resourcesDescription></task></grmsJob>`)
	return b.String()
}

// A point is one result of a line.
type point struct {
	line      string
	processes int // as counted
	farm.Result
}

// measure runs both patterns on this number of processes, and the hierarchical one also with as
// many more processes as it then has bosses: bosses need hardly any processor time, so that each
// can share a processor with a worker, and the article counts them in this way, too. With a profile
// there are also jobs without one, on the same hosts: the vanilla pattern with flat collectives and
// with those that are chosen by sites, and bosses in each site.
func (s Ray2mesh) measure(ctx context.Context, g *grid.Grid, processes int, check bool) ([]point, error) {
	args := []string{"--rays", fmt.Sprint(s.Rays), "--chunk", fmt.Sprint(s.Chunk), "--speed", fmt.Sprint(s.Speed),
		"--handling", fmt.Sprint(s.Handling), "--credit", fmt.Sprint(s.Credit), "--repeat", fmt.Sprint(s.Repeat)}
	both, err := s.job(ctx, g, processes,
		append([]string{"--pattern", "vanilla,hierarchical", fmt.Sprintf("--check=%v", check)}, args...)...)
	if err != nil {
		return nil, err
	}
	if len(both) != 2 {
		return nil, fmt.Errorf("ray2mesh on %d processes: %d results, want 2", processes, len(both))
	}
	points := []point{{lineVanilla, processes, both[0]}, {lineBosses, processes, both[1]}}
	if !s.full(processes) {
		return points, nil
	}
	more, err := s.job(ctx, g, processes+s.Sites,
		append([]string{"--pattern", "hierarchical", "--check=false"}, args...)...)
	if err != nil {
		return nil, err
	}
	if len(more) != 1 {
		return nil, fmt.Errorf("ray2mesh on %d processes, bosses not counted: %d results, want 1", processes, len(more))
	}
	points = append(points, point{lineUncount, processes, more[0]})
	if !s.Profile {
		return points, nil
	}
	for _, w := range []struct {
		line, pattern string
		env           []string
	}{{lineFlat, "vanilla", []string{flat}}, {lineGrid, "vanilla", nil}, {lineSites, "hierarchical", nil}} {
		bed := s.Bed
		bed.Env = w.env
		results, err := Example[farm.Result](ctx, bed, g, spread(processes, s.Sites), "ray2mesh", append([]string{"--pattern", w.pattern, "--check=false"}, args...)...)
		if err != nil {
			return nil, err
		}
		if len(results) != 1 {
			return nil, fmt.Errorf("ray2mesh, %s, on %d processes: %d results, want 1", w.line, processes, len(results))
		}
		points = append(points, point{w.line, processes, results[0]})
	}
	return points, nil
}

// full reports whether all lines have a point at this number of processes.
func (s Ray2mesh) full(processes int) bool { return !s.Brief || processes == slices.Max(s.Processes) }

// agree returns an error unless all results equal the first, which was checked.
func agree(all []point) error {
	for _, p := range all {
		if p.Times != all[0].Times || p.Mesh != all[0].Mesh {
			return fmt.Errorf("%s on %d processes: the results are not those of %s on %d", p.line, p.processes, all[0].line, all[0].processes)
		}
	}
	if len(all) == 0 || !all[0].Verified {
		return errors.New("the results were not checked against one rank's")
	}
	return nil
}

// rows turns points into figures: times, speed-ups over vanilla, messages, and the number of
// processes from which bosses pay.
func (s Ray2mesh) rows(all []point) (rows []bench.Row) {
	for _, p := range all {
		params := s.params(p.line)
		params["processes"] = p.processes
		seconds := bench.Row{Bench: "ray2mesh", Figure: "time", Params: params, Value: p.Seconds, Unit: "s"}
		if v := vanillaOf(all, p.processes); p.line != lineVanilla {
			seconds.Against, seconds.Ratio = lineVanilla, p.Seconds/v.Seconds
			rows = append(rows, bench.Row{Bench: "ray2mesh", Figure: "acceleration", Params: params, Value: v.Seconds / p.Seconds, Unit: "times"})
		}
		rows = append(rows, seconds,
			bench.Row{Bench: "ray2mesh", Figure: "trace_phase", Params: params, Value: p.Phases.Trace, Unit: "s"},
			bench.Row{Bench: "ray2mesh", Figure: "collective_phases", Params: params, Value: p.Phases.Broadcast + p.Phases.Merge, Unit: "s"},
			bench.Row{Bench: "ray2mesh", Figure: "workers", Params: params, Value: float64(p.Workers), Unit: "processes"},
			bench.Row{Bench: "ray2mesh", Figure: "wan_messages", Params: params, Value: float64(p.Traffic.WANMessages), Unit: "messages"})
	}
	return append(rows, bench.Row{Bench: "ray2mesh", Figure: "bosses_pay_from", Params: s.params(lineBosses), Value: float64(payFrom(all)), Unit: "processes"})
}

func (s Ray2mesh) params(line string) map[string]any {
	return map[string]any{"algorithm": line, "sites": s.Sites, "rays": s.Rays, "chunk": s.Chunk, "credit": s.Credit, "rays_per_second": s.Speed,
		"handling": s.Handling, "rtt_ms": float64(s.RTT.Microseconds()) / 1000}
}

func vanillaOf(all []point, processes int) point {
	i := slices.IndexFunc(all, func(p point) bool { return p.line == lineVanilla && p.processes == processes })
	return all[i]
}

// payFrom returns the smallest number of processes, bosses included, from which the hierarchical
// pattern is faster, or 0 if it never is.
func payFrom(all []point) (processes int) {
	for _, p := range slices.Backward(all) {
		if p.line != lineBosses {
			continue
		}
		if p.Seconds >= vanillaOf(all, p.processes).Seconds {
			return processes
		}
		processes = p.processes
	}
	return processes
}
