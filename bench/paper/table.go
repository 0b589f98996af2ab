package paper

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// An experiment is a table or figure of an article: how it is measured here, and what it claims.
type experiment struct {
	name        string // such as "qcg-table-1"
	paper, item string
	minutes     float64 // about how long it takes with three repetitions, on two processors that do nothing else
	size        string  // what is smaller here, or otherwise; "" if nothing is
	measure     func(Options, context.Context) (measured, error)
	claims      []claim
}

// measured is what an experiment found.
type measured struct {
	figures figures
	curves  []bench.Row // of the lines that are drawn
}

// figures are measured values, by the names that claims have for them.
type figures map[string]float64

// A claim is what an article says, as a figure and the bounds within which that has to be.
type claim struct {
	figure    string // its name among those that are measured
	text      string
	theirs    string // the article's own figure
	unit      string
	low, high float64
	why       string // of a claim that is known not to hold: what is so instead, and why
}

var inf = math.Inf(1)

// some is the least difference that counts as one.
const some = 1e-9

const (
	qcg       = "QCG-OMPI"
	p2pAlloc  = "P2P-MPI, co-allocation"
	p2pRobust = "P2P-MPI, robust execution"
	jace      = "JaceP2P-V2, mapping"
)

// geometry is how much longer the way by a proxy in Orsay is than the one between Bordeaux and Rennes.
const geometry = float64(orsayBordeaux+orsayRennes) / float64(rennesBordeaux)

// eachLeg is why a proxy costs less than its round trips where windows limit.
const eachLeg = "the proxy ends both connections, so that each has a window of its own: the longer way counts, 10.3 to 8.0 ms is 1.29, and not the sum of both"

// oneLatency is why a barrier has more messages here than in the article.
const oneLatency = "all sites tell all at once, C(C-1) messages, which takes one latency in place of two"

// onceCrossed is why flits do not gain in a gather by two levels.
const onceCrossed = "a message crosses between sites once, and what could go on meanwhile is a copy within a host, over shared memory: flits hide a few per cent. They gain where a message crosses one hop after another"

// fewCrossings is why collectives by sites do not gain in ray2mesh.
const fewCrossings = "ranks of a site follow one another, so that a binomial tree crosses between sites as rarely as one by sites; what takes time is the all-to-all, of which there is one algorithm, and two jobs in which 48 processes share two processors for it differ by more than the others take"

// anAnswer is why hosts are not always those of the algorithms.
const anAnswer = "a host is as far as its fastest answer, and where hundreds of processes share two processors some hosts seem as far as a site 1 ms farther"

// sharedMemory is why IS on few ranks is not faster on more hosts.
const sharedMemory = "the article's processes contend for a host's memory; here all hosts share one machine's, and ranks of one host exchange their keys in it, those of several over an emulated network"

// allRanksShare is why IS takes longer on more ranks, although its keys are the same.
const allRanksShare = "in the article more ranks have more hosts; here all share two processors, and four times as many ranks send sixteen times as many messages"

// notInstalled is why there may be nothing to compare with.
const notInstalled = "with 0, Open MPI is not installed (openmpi-bin, libopenmpi-dev); otherwise no reason is known"

// table has all that is measured.
var table = append([]experiment{
	{"qcg-table-1", qcg, "table 1", 1, "", Options.latencies, []claim{
		{"direct", "a direct connection takes as long as the network", "8.0 of 8.1 ms: 0.99", "times", 0.98, 1.1, ""},
		{"traversing", "so does traversing", "8.0 of 8.0 ms: 1.00", "times", 0.9, 1.1, ""},
		{"near proxy", "a proxy in the site of one end adds little", "8.4 of 7.8 ms: 1.08", "times", 1, 1.15, ""},
		{"rennes", "between Orsay and Rennes a direct connection takes as long as the network, too", "10.3 of 10.3 ms: 1.00", "times", 0.98, 1.1, ""},
		{"rennes, near proxy", "and a proxy in Orsay adds little", "10.6 of 10.3 ms: 1.03", "times", 1, 1.15, ""},
		{"far proxy", "a proxy in a third site adds the way by it", fmt.Sprintf("28.7 of 8.0 ms: 3.6; its own round trips add up to %.2f", geometry), "times", 0.9 * geometry, 1.1 * geometry, ""},
	}},
	{"qcg-table-2", qcg, "table 2", 1, "messages of 4 MiB, of 1 MiB where windows limit", Options.bandwidths, []claim{
		{"direct", "a direct connection fills the path", "136 Mb/s of 136", "of it", 0.9, 1.01, ""},
		{"traversing", "so does traversing", "138 of 136 Mb/s: 1.02", "times", 0.95, 1.05, ""},
		{"relayed", "a proxy in the site of one end is no faster", "76.4 of 136 Mb/s: 0.56", "times", 0, 1.05, ""},
		{"window", "with buffers of 128 KiB, a direct connection has a window in each round trip, of so many times 128 KiB", "136 Mb/s in 7.8 ms: 1.01", "times", 0.4, 1.1, ""},
		{"window, traversing", "so has traversing, of direct", "1.02", "times", 0.95, 1.05, ""},
		{"window, near proxy", "and a proxy in the site of one end no more", "0.56", "times", 0, 1.05, ""},
		{"window, far proxy", "by a proxy in a third site a message takes longer than by a direct connection", fmt.Sprintf("not measured; its own round trips add up to %.2f", geometry), "times", 0.9 * geometry, 1.1 * geometry, eachLeg},
	}},
	{"qcg-messages", qcg, "sections 3.3 and 4.3", 0.5, "4 sites of 4 ranks", Options.messages, []claim{
		{"bcast by two-level", "messages between 4 sites: a broadcast by sites", "C-1: 3", "messages", 3, 3, ""},
		{"reduce by two-level", "a reduction", "C-1: 3", "messages", 3, 3, ""},
		{"gather by two-level", "a gather", "C-1: 3", "messages", 3, 3, ""},
		{"scatter by two-level", "a scatter", "C-1: 3", "messages", 3, 3, ""},
		{"barrier by two-level-star", "a barrier by way of one site", "2(C-1): 6", "messages", 6, 6, ""},
		{"barrier by choice", "a barrier as it is chosen", "2(C-1): 6", "messages", 6, 6, oneLatency},
		{"allreduce by two-level-star", "an allreduce by way of one site", "2(C-1): 6", "messages", 6, 6, ""},
		{"allreduce by two-level", "an allreduce in which all sites tell all", "2(C-1): 6", "messages", 6, 6, oneLatency},
		{"allgather by two-level", "an allgather", "C(C-1): 12", "messages", 12, 12, ""},
		{"alltoall by two-level", "an alltoall", "C(C-1): 12", "messages", 12, 12, ""},
		{"bcast by binomial", "a broadcast by a flat tree of 16 ranks, which alternate between the sites", "more, with more ranks", "messages", 4, inf, ""},
		{"least", "for each byte of a message the emulator of the wide area sees so many, at least", "1", "bytes", 1, 1.1, ""},
		{"most", "and, with headers and acknowledgements, at most", "1", "bytes", 1, 1.1, ""},
	}},
	{"qcg-section-3-3", qcg, "section 3.3", .1, "counted in schedules, of 180 ranks at 3 sites", Options.trees, []claim{
		{"two-level blocked", "messages between sites that follow one another in a broadcast by sites, ranks blocked", "O(1)", "messages", 1, 1, ""},
		{"two-level round-robin", "the same, ranks round-robin", "O(1)", "messages", 1, 1, ""},
		{"binomial blocked", "by a binomial tree, ranks blocked", "O(log2 C): 2", "messages", 1, 2, ""},
		{"binomial round-robin", "by a binomial tree, ranks round-robin", "O(log2 C): 2", "messages", 1, 2, "that is so only if ranks of a site follow one another; where they alternate, each step of the tree crosses between sites"},
		{"two-level round-robin messages", "messages between sites in all, by sites", "C-1: 2", "messages", 2, 2, ""},
		{"binomial round-robin messages", "messages between sites in all, by a binomial tree, ranks round-robin", "more", "messages", 3, inf, ""},
	}},
	{"qcg-figure-4", qcg, "figure 4", 1.2, "2 sites of 4 ranks, sizes of 256 KiB and 1 MiB; a tenth less counts as a gain", Options.flits, []claim{
		{"gather of 1024 KiB, 8 over 1", "flits gain: with 8 in place of 1, a gather of 1 MiB by two levels takes", "less; figure only", "times", 0, 1 - gain, onceCrossed},
		{"gather of 1024 KiB, best", "more flits gain nothing from so many on, a gather of 1 MiB by two levels", "8", "flits", 2, 8, onceCrossed},
		{"bcast of 256 KiB, 8 over 1", "flits gain: with 8 in place of 1, a broadcast of 256 KiB along a chain over sites in turn takes", "less; figure only", "times", 0, 1 - gain, ""},
		{"bcast of 1024 KiB, 8 over 1", "flits gain: with 8 in place of 1, a broadcast of 1 MiB along a chain over sites in turn takes", "less; figure only", "times", 0, 1 - gain, ""},
		{"bcast of 1024 KiB, best", "more flits gain nothing from so many on, a broadcast of 1 MiB along a chain over sites in turn", "8", "flits", 2, 8, ""},
	}},
	{"qcg-figure-5a", qcg, "figure 5 (a)", 1.5, "sizes of 1, 64 and 256 KiB; less than a fifth counts as equal, as both are the same tree where ranks of a site follow one another", Options.bcast, []claim{
		{"blocked", "a broadcast by sites is not slower than a flat tree at any size, ranks blocked", "always better; figure only", "times at most", 0, 1.2, ""},
		{"round-robin", "a broadcast by sites is not slower than a flat tree at any size, ranks round-robin", "always better; figure only", "times at most", 0, 1.2, ""},
	}},
	{"qcg-figure-5b", qcg, "figure 5 (b)", 1.5, "2 sites of 16 hosts. Where the lines cross lies within what medians differ by: a vector crosses between two sites once by either", Options.reduce, []claim{
		{"short", "a reduction of 8 bytes by sites is faster than a flat pipeline", "better for short ones; figure only", "times", 0, 1, ""},
		{"long", "the pipeline gains with length: of the times that both take, by sites over the pipeline, that of 8 bytes is less than that of 1 MiB", "the pipeline is faster from 100 kB on", "times", 0, 1 - gain, ""},
	}},
	{"qcg-figure-5c", qcg, "figure 5 (c)", .1, "one host of 4 ranks", Options.hostReduce, []claim{
		{"worst", "on a host, a reduction over shared memory is not slower than a flat pipeline at any size", "better; figure only", "times at most", 0, 1.05, ""},
	}},
	{"qcg-figure-7", qcg, "figure 7", 3.5, "12 to 48 processes in place of 180, whose speed is emulated, and chunks that keep the master as busy as 180 would", Options.ray2mesh, []claim{
		{"from", "bosses pay from so many processes on (0: never)", "30", "processes", 13, mostProcesses, ""},
		{"collectives", fmt.Sprintf("collectives by sites alone gain, on %d processes", mostProcesses), "9.5 % on 180; they never harm", "%", 5, 100, fewCrossings},
		{"gain", fmt.Sprintf("with as many workers they gain, on %d processes, of the time of tracing (all 48 share two processors in broadcasts and the all-to-all, which bosses do not change)", mostProcesses), "35 % on 180, of all", "%", 10, 60, ""},
		{"sites", fmt.Sprintf("in a job without groups bosses are those of sites: tracing takes, on %d processes, beside those of a job profile's groups", mostProcesses), "not measured", "times", .85, 1.15, ""},
	}},
	{"qcg-figure-9", qcg, "figure 9", 3.2, "a processor of each site, limited to a half, and 4194304 rows at most", Options.tsqr, []claim{
		{"from", "TSQR is fastest on 4 sites from so many rows on (0: never)", "500000", "rows", shortest, 1 << 20, ""},
		{"columns from", "column by column that takes so many times as many rows, or more", "20", "times", 1 + some, inf, ""},
		{"gain", fmt.Sprintf("TSQR of %d rows is as many times as fast on 4 sites", tallest), "about 4", "times", 3, 4.4, ""},
		{"columns gain", "of that, column by column has", "hardly a half, at 33554432 rows", "of it", 0, 1 - some, ""},
	}},
	{"p2p-alloc-figures-2-3", p2pAlloc, "figures 2 and 3, table 1", 2.8, "4 of the 11 sizes; the helpers of a site share a process", Options.allocations, []claim{
		{"near", "concentrate: 200 processes have so many of the 6 sites", "1", "sites", 1, 1, ""},
		{"lyon", "concentrate: 250 have so many hosts of lyon", "5", "hosts", 5, 5, anAnswer},
		{"four", "spread: 250 have so many sites", "4", "sites", 4, 4, anAnswer},
		{"six", "spread: 300 have so many sites", "6", "sites", 6, 6, anAnswer},
		{"second", "spread: of 400 so many are the second one of a host of nancy", "50 by its algorithm; figure only", "processes", 1, 60, ""},
		{"agree", "hosts and processes of a site are as many as the article's algorithms give", "by its measured latencies some sites interleave from 300 on", "of all", .9, 1, anAnswer},
	}},
	{"p2p-alloc-figure-4", p2pAlloc, "figure 4", 1.2, "an eighth of the hosts and ranks, IS and EP of class W; less than a fifth counts as equal. That processes of a host share its memory cannot show", Options.kernels, []claim{
		{"is, few", fmt.Sprintf("IS on %d ranks, within one site by either strategy: spread over concentrate", fewRanks), "at most 1, on 32; figure only", "times", 0, 1.2, sharedMemory},
		{"is, many", fmt.Sprintf("IS on %d ranks, when spread leaves the site: spread over concentrate", manyRanks), "slower, from 64 on; figure only", "times", 1.2, inf, ""},
		{"is, most", fmt.Sprintf("IS on %d ranks", mostRanks), "slower; figure only", "times", 1.2, inf, ""},
		{"is, concentrate", fmt.Sprintf("IS by concentrate, within the site: on %d ranks over %d", mostRanks, fewRanks), "about constant; figure only", "times", .5, 2, allRanksShare},
		{"ep, few", fmt.Sprintf("EP on %d ranks: spread over concentrate", fewRanks), "slightly below 1; figure only", "times", 0.8, 1.2, ""},
		{"ep, many", fmt.Sprintf("EP on %d ranks, when spread leaves the site: spread over concentrate", manyRanks), "slightly below 1; figure only", "times", 0.8, 1.2, ""},
		{"ep, most", fmt.Sprintf("EP on %d ranks", mostRanks), "slightly below 1; equal on 512; figure only", "times", 0.8, 1.2, ""},
	}},
	{"p2p-robust-figure-4", p2pRobust, "figure 4", .2, "the exchange of keys of class W between 4 hosts with 100 Mb/s, in place of IS itself, of which neither the article's program in Java nor NPB's are here; EP exchanges nothing", Options.exchange, []claim{
		{"exchange", "the exchange of IS takes about as long as with Open MPI, which LAM has become (0: not installed), so many times", "IS close to LAM on up to 16; figure only", "times", some, 1.3, notInstalled},
	}},
	{"p2p-robust-figure-5", p2pRobust, "figure 5", 1.3, "4 ranks of class W in place of 8 of class B", Options.replicas, []claim{
		{"linear", "the time of IS is linear in the number of replicas, when one sends to all", "linear; figure only", "R squared", 0.98, 1, ""},
		{"slope", "and grows with it", "grows; figure only", "s per replica", some, inf, ""},
	}},
	{"jace-live", jace, "tables 2 to 5", 3.7, "16 tasks on 20 nodes in 5 sites, 74 cores of a fortieth of a processor each, and 22000 rows; which gains most lies within what three orders vary by", Options.live, []claim{
		{"SMa", "with real processes, gain of SMa", "27 to 37 %", "%", some, 100, byPower},
		{"AIAC-QM", "gain of AIAC-QM", "33 to 52 %", "%", some, 100, ""},
		{"F-EC", "gain of F-EC", "23 to 46 %", "%", some, 100, byPower},
	}},
},
	sizes(mapping.Testbeds[5]),
	mapped(2, mapping.Testbeds[0], [3]float64{27, 33, 40}, "F-EC", "AIAC-QM", "SMa"),
	mapped(3, mapping.Testbeds[1], [3]float64{34, 38, 46}, "F-EC", "AIAC-QM", "SMa"),
	mapped(4, mapping.Testbeds[2], [3]float64{32, 45, 23}, "AIAC-QM", "SMa", "F-EC"),
	mapped(5, mapping.Testbeds[3], [3]float64{37, 52, 30}, "AIAC-QM", "SMa", "F-EC"),
	parameters(mapping.Testbeds[4]),
)

// judge returns the rows of an experiment's claims.
func (e experiment) judge(of figures) (rows []bench.Row, err error) {
	for _, c := range e.claims {
		v, ok := of[c.figure]
		if !ok {
			return nil, fmt.Errorf("%q was not measured", c.figure)
		}
		rows = append(rows, e.row(c, v))
	}
	return rows, nil
}

// row returns the row of a claim with its verdict and, if it does not hold, the reason.
func (e experiment) row(c claim, v float64) bench.Row {
	row := bench.Row{Bench: "paper", Figure: e.name, Value: v, Unit: c.unit, Params: map[string]any{
		"source": e.paper + ", " + e.item, "claim": c.text, "article": c.theirs,
	}}
	if e.size != "" {
		row.Params["here"] = e.size
	}
	met := c.low <= v && v <= c.high // and not from their middle, which is rounded
	row.Target, row.Met = (c.low+c.high)/2, &met
	if c.high == inf {
		row.Target = c.low
	}
	if !*row.Met {
		row.Params["why"] = cmp.Or(c.why, "no reason is known; it holds "+c.bounds())
	}
	return row
}

// bounds returns within which bounds a claim holds.
func (c claim) bounds() string {
	number := func(v float64) string { return fmt.Sprintf("%.4g", v) }
	switch {
	case c.low == c.high:
		return "at " + number(c.low)
	case c.high == inf:
		return "from " + number(c.low)
	case c.low == 0:
		return "up to " + number(c.high)
	}
	return number(c.low) + " to " + number(c.high)
}
