package allocate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Process is one copy of a rank.
type Process struct {
	Rank int `json:"rank"` // from 0 to Job.Ranks-1
	Copy int `json:"copy"` // from 0 to Job.Copies-1
}

// Plan is where every process of a job runs. It belongs to the caller.
type Plan struct {
	Job      Job
	Strategy string
	Hosts    []Placed // every host given, in that order

	// Paths, if the caller sets it, has the known paths between the sites in use, for display.
	Paths []SitePath

	// Risk, if the caller sets it, says how likely the job is to fail, for display.
	Risk *Risk

	// Replace, if the caller sets it, is how many lost processes will be replaced, for display.
	Replace int

	// Graph, if the caller sets it, is what the plan costs by the job's graph, for display.
	Graph *GraphCost

	order []int // hosts with processes, in the order in which ranks were numbered
}

// Risk is how likely a job is to lose all replicas of some rank.
type Risk struct {
	MTBF     time.Duration // the mean time between failures of a host
	Walltime time.Duration // of the job
	Failure  []float64     // the probability with 1, 2, ... replicas of each rank
}

// SitePath is the path between two sites; zero fields are unknown.
type SitePath struct {
	Sites [2]overlay.SiteID // in the order of their names
	Path
}

// Placed is a host and its processes.
type Placed struct {
	Host
	Capacity  int       // processes of the job that it could run
	Processes []Process // its processes; none: it is not needed
}

// newPlan numbers ranks along the shares: 0 to n-1, then again for the next copy. No host gets two
// copies of a rank, since a share has at most n processes and n consecutive numbers are distinct.
// at[i] is the index in hosts of the strategy's host i.
func newPlan(job Job, strategy string, hosts []Host, at []int, shares []Share) *Plan {
	p := &Plan{Job: job, Strategy: strategy, Hosts: make([]Placed, len(hosts))}
	for i, h := range hosts {
		p.Hosts[i] = Placed{Host: h, Capacity: capacity(job, h)}
	}
	first := 0 // the lowest rank in the rounds
	if job.pinned() {
		first = 1
		for i := range p.Hosts {
			if p.Hosts[i].Node == job.Home {
				p.Hosts[i].Processes = []Process{{0, 0}}
				p.order = append(p.order, i)
			}
		}
	}
	round, next := job.Ranks-first, 0
	for _, s := range shares {
		h := &p.Hosts[at[s.Host]]
		if len(h.Processes) == 0 {
			p.order = append(p.order, at[s.Host])
		}
		for range s.Processes {
			h.Processes = append(h.Processes, Process{Rank: first + next%round, Copy: next / round})
			next++
		}
	}
	return p
}

// Used returns the hosts with processes, in the order in which ranks are numbered.
func (p *Plan) Used() []Placed {
	used := make([]Placed, len(p.order))
	for i, at := range p.order {
		used[i] = p.Hosts[at]
	}
	return used
}

// WriteTable prints the plan as a table: a line for each host with processes, and a sum. A copy
// after the first is written after a slash: 0-3/1 are the second copies of ranks 0 to 3.
func (p *Plan) WriteTable(w io.Writer) error {
	t := printable.NewTable(w)
	t.Row("HOST", "SITE", "LATENCY", "CAPACITY", "PROCESSES", "RANKS")
	processes, sites := 0, map[string]bool{}
	for _, h := range p.Used() {
		t.Row(h.Node.Name, h.Node.Site, latencyText(h.Latency), h.Capacity, len(h.Processes), ranksText(h.Processes))
		processes += len(h.Processes)
		sites[string(h.Node.Site)] = true
	}
	if err := t.Flush(); err != nil {
		return err
	}
	together := ""
	if n := p.Together(); n > 0 {
		together = fmt.Sprintf("; pairs of copies at one site: %d", n)
	}
	if _, err := fmt.Fprintf(w, "%s: %d processes (%d ranks, %d copies each) on %d of %d hosts, %d sites%s\n",
		p.Strategy, processes, p.Job.Ranks, p.Job.Copies, len(p.order), len(p.Hosts), len(sites), together); err != nil {
		return err
	}
	return errors.Join(p.writeReplace(w), p.writeGraph(w), p.writePaths(t), p.writeRisk(t))
}

// writeReplace prints how many processes will be replaced, if any.
func (p *Plan) writeReplace(w io.Writer) error {
	if p.Replace == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "up to %d lost processes are replaced, at hosts without processes of the job then\n", p.Replace)
	return err
}

// writeGraph prints the cost by the graph, if it is known.
func (p *Plan) writeGraph(w io.Writer) error {
	if p.Graph == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "graph: an iteration of the slowest task takes %.4g s; weight between sites: %g of %g\n", p.Graph.Iteration, p.Graph.Cut, p.Graph.Weight)
	return err
}

// writePaths prints the paths between the sites, if they are known.
func (p *Plan) writePaths(t *printable.Table) error {
	if len(p.Paths) == 0 {
		return nil
	}
	t.Row()
	t.Row("BETWEEN", "AND", "LATENCY", "BANDWIDTH")
	for _, path := range p.Paths {
		rtt := UnknownLatency
		if path.RTT > 0 {
			rtt = path.RTT
		}
		t.Row(path.Sites[0], path.Sites[1], latencyText(rtt), bandwidthText(path.Bandwidth))
	}
	return t.Flush()
}

// writeRisk prints the risk, if it is known.
func (p *Plan) writeRisk(t *printable.Table) error {
	if p.Risk == nil {
		return nil
	}
	t.Row()
	t.Row("REPLICAS", "PROCESSES", fmt.Sprintf("FAILS IN %s, IF A HOST FAILS EVERY %s", daysText(p.Risk.Walltime), daysText(p.Risk.MTBF)))
	for i, f := range p.Risk.Failure {
		t.Row(i+1, p.Job.Ranks*(i+1), fmt.Sprintf("%.3g %%", 100*f))
	}
	return t.Flush()
}

// daysText writes whole days and hours as such.
func daysText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}

func bandwidthText(bytes float64) string {
	switch bits := bytes * 8; {
	case bits <= 0:
		return "unknown"
	case bits >= 1e9:
		return fmt.Sprintf("%.3g Gbit/s", bits/1e9)
	case bits >= 1e6:
		return fmt.Sprintf("%.3g Mbit/s", bits/1e6)
	default:
		return fmt.Sprintf("%.3g kbit/s", bits/1e3)
	}
}

func latencyText(d time.Duration) string {
	if d == UnknownLatency {
		return "unknown"
	}
	return fmt.Sprintf("%.3f ms", milliseconds(d))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ranksText writes runs of ranks as ranges.
func ranksText(all []Process) string {
	var b strings.Builder
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && all[end].Copy == all[i].Copy && all[end].Rank == all[end-1].Rank+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, all[i].Rank)
		if end > i+1 {
			fmt.Fprintf(&b, "-%d", all[end-1].Rank)
		}
		if all[i].Copy > 0 {
			fmt.Fprintf(&b, "/%d", all[i].Copy)
		}
		i = end
	}
	return b.String()
}

// planJSON is the JSON of a plan, without hosts that have no process.
type planJSON struct {
	Strategy string       `json:"strategy"`
	Ranks    int          `json:"ranks"`
	Copies   int          `json:"copies"`
	Together int          `json:"together,omitempty"` // pairs of copies of one rank at one site
	Pattern  Pattern      `json:"pattern"`
	Hosts    []placedJSON `json:"hosts"`
	Paths    []pathJSON   `json:"paths,omitempty"`
	Risk     *riskJSON    `json:"risk,omitempty"`
	Graph    *GraphCost   `json:"graph,omitempty"`
	Replace  int          `json:"replace,omitempty"` // how many lost processes are replaced
}

type riskJSON struct {
	MTBF     float64   `json:"mtbf_s"`
	Walltime float64   `json:"walltime_s"`
	Failure  []float64 `json:"failure"` // the probability with 1, 2, ... replicas of each rank
}

type pathJSON struct {
	Sites     [2]overlay.SiteID `json:"sites"`
	LatencyMS float64           `json:"latency_ms,omitempty"` // absent: not measured
	Bandwidth float64           `json:"bandwidth,omitempty"`  // bytes a second; absent: not measured
}

type placedJSON struct {
	Node      string    `json:"node"`
	Site      string    `json:"site"`
	LatencyMS *float64  `json:"latency_ms"` // null: not measured
	Capacity  int       `json:"capacity"`
	Processes []Process `json:"processes"`
}

// MarshalJSON implements json.Marshaler.
func (p *Plan) MarshalJSON() ([]byte, error) {
	out := planJSON{Strategy: p.Strategy, Ranks: p.Job.Ranks, Copies: p.Job.Copies, Pattern: p.Job.Pattern, Hosts: []placedJSON{}, Together: p.Together(), Graph: p.Graph, Replace: p.Replace}
	if r := p.Risk; r != nil {
		out.Risk = &riskJSON{r.MTBF.Seconds(), r.Walltime.Seconds(), r.Failure}
	}
	for _, h := range p.Used() {
		j := placedJSON{Node: h.Node.String(), Site: string(h.Node.Site), Capacity: h.Capacity, Processes: h.Processes}
		if h.Latency != UnknownLatency {
			ms := math.Round(milliseconds(h.Latency)*1e6) / 1e6
			j.LatencyMS = &ms
		}
		out.Hosts = append(out.Hosts, j)
	}
	for _, path := range p.Paths {
		out.Paths = append(out.Paths, pathJSON{path.Sites, milliseconds(path.RTT), path.Bandwidth})
	}
	return json.Marshal(out)
}
