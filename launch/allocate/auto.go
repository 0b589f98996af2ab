package allocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxAutoHosts bounds the hosts that Auto compares, the nearest to the submitter.
const MaxAutoHosts = 2048

// Auto places a job by the measurements between the hosts and by the job's communication pattern:
// it searches for the shares, and the order in which ranks are numbered along them, that make
// Plan.Cost small.
//
// The optimum is intractable (already the dense pattern contains the densest-subgraph problem), so
// Auto starts from many placements: those of Spread and Concentrate, and for up to 64 hosts the one
// that grows from that host by always adding the host with the least cost per process. It improves
// the best few step by step until no step helps or the work is used up. Its cost is never above
// that of Spread or Concentrate, and a test compares it with the optimum of small jobs.
//
// Cost counts only messages. Contention among the processes of a host, for memory bandwidth above
// all, must be limited by Job.Memory, Job.CPU and the owner's P.
type Auto struct {
	Network Network // nil: no measurements
}

// Name implements Strategy.
func (Auto) Name() string { return "auto" }

// Settled implements Strategy: a host far from the submitter may be near all others.
func (Auto) Settled(Demand) bool { return false }

const (
	autoSeeds   = 64      // hosts to grow from
	autoImprove = 3       // starts to improve
	autoDoors   = 16      // sites to compare when a placement expands to another
	autoWork    = 2 << 20 // additions to spend on improving each
)

// Place implements Strategy.
func (a Auto) Place(d Demand) ([]Share, error) {
	if len(d.Hosts) > MaxAutoHosts {
		d.Hosts, d.Capacity = d.Hosts[:MaxAutoHosts], d.Capacity[:MaxAutoHosts]
		if have := sum(d.Capacity); have < d.Processes {
			return nil, fmt.Errorf("the nearest %d hosts, the most that it compares, take %d of %d processes; use concentrate", MaxAutoHosts, have, d.Processes)
		}
	}
	f := newField(d, a.Network)
	var starts []start
	add := func(shares []Share) { starts = append(starts, start{shares, f.cost(shares)}) }
	spread, _ := Spread{}.Place(d) // neither returns an error
	concentrate, _ := Concentrate{}.Place(d)
	add(spread)
	add(concentrate)
	for _, seed := range f.seeds() {
		add(f.grow(seed))
	}
	slices.SortStableFunc(starts, func(a, b start) int { return cmp.Compare(a.cost, b.cost) })
	best := starts[0]
	for _, s := range starts[:min(autoImprove, len(starts))] {
		if s = f.improve(s, autoWork); s.cost < best.cost {
			best = s
		}
	}
	return best.shares, nil
}

// start is a placement and its cost.
type start struct {
	shares []Share
	cost   float64
}

// field is a demand with the time of a message between every two of its hosts.
type field struct {
	Demand
	width int       // hosts, plus home if that has room only for rank 0
	home  int       // where rank 0 is pinned; -1: not pinned
	time  []float64 // seconds, row by row

	seq    []int // scratch: the host of each process, in the order of numbering
	first  []int // scratch: first copies on each host
	all    []int // scratch: all copies on each host
	active []int // scratch: hosts with any
}

func newField(d Demand, network Network) *field {
	hosts, home := d.Hosts, -1
	if d.Job.pinned() {
		home = slices.IndexFunc(hosts, func(h Host) bool { return h.Node == d.Job.Home })
		if home < 0 {
			home = len(hosts)
			hosts = append(slices.Clone(hosts), d.Home)
		}
	}
	w := len(hosts)
	f := &field{Demand: d, width: w, home: home, time: make([]float64, w*w), first: make([]int, w), all: make([]int, w)}
	for i, from := range hosts {
		for j, to := range hosts {
			f.time[i*w+j] = messageTime(network, d.Job.Message, from, to)
		}
	}
	return f
}

// roundTrip returns the time of a message each way.
func (f *field) roundTrip(i, j int) float64 { return f.time[i*f.width+j] + f.time[j*f.width+i] }

// cost returns Plan.Cost of the plan for the shares.
func (f *field) cost(shares []Share) float64 {
	f.seq = f.seq[:0]
	for _, s := range shares {
		for range s.Processes {
			f.seq = append(f.seq, s.Host)
		}
	}
	if f.Job.Pattern == Dense {
		return f.denseCost()
	}
	total := 0.0
	f.Job.Pattern.pairs(f.Job.Ranks, func(a, b int) { total += f.send(a, b) + f.send(b, a) })
	return total
}

// hostOf returns the host of a copy of a rank; copies of a pinned rank 0 after the first do not
// exist.
func (f *field) hostOf(rank, copy int) (host int, exists bool) {
	switch {
	case f.home < 0:
		return f.seq[copy*f.Job.Ranks+rank], true
	case rank == 0:
		return f.home, copy == 0
	}
	return f.seq[copy*(f.Job.Ranks-1)+rank-1], true
}

// send returns the time of the messages from one rank's first copy to all copies of another.
func (f *field) send(from, to int) float64 {
	src, _ := f.hostOf(from, 0)
	total := 0.0
	for c := range f.Job.Copies {
		if dst, exists := f.hostOf(to, c); exists {
			total += f.time[src*f.width+dst]
		}
	}
	return total
}

// denseCost computes by hosts what the pattern defines by ranks: every first copy sends to every
// process, minus what it would send to its own rank.
func (f *field) denseCost() float64 {
	clear(f.first)
	clear(f.all)
	f.active = f.active[:0]
	total := 0.0
	for rank := range f.Job.Ranks {
		src, _ := f.hostOf(rank, 0)
		f.first[src]++
		for c := range f.Job.Copies {
			if dst, exists := f.hostOf(rank, c); exists {
				if f.all[dst]++; f.all[dst] == 1 {
					f.active = append(f.active, dst)
				}
				total -= f.time[src*f.width+dst]
			}
		}
	}
	for _, i := range f.active {
		if f.first[i] == 0 {
			continue
		}
		row, sum := f.time[i*f.width:], 0.0
		for _, j := range f.active {
			sum += float64(f.all[j]) * row[j]
		}
		total += float64(f.first[i]) * sum
	}
	return total
}

// work estimates the additions for one cost.
func (f *field) work(shares []Share) int {
	if f.Job.Pattern == Dense {
		return f.Processes + len(shares)*len(shares)
	}
	return 4 * f.Processes
}

// seeds selects hosts to grow from: the nearest of every site, then the second of every site, and
// so on.
func (f *field) seeds() []int {
	nth := map[overlay.SiteID]int{}
	turn := make([]int, len(f.Hosts))
	seeds := make([]int, len(f.Hosts))
	for i, h := range f.Hosts {
		turn[i], seeds[i] = nth[h.Node.Site], i
		nth[h.Node.Site]++
	}
	slices.SortStableFunc(seeds, func(a, b int) int { return turn[a] - turn[b] })
	return seeds[:min(autoSeeds, len(seeds))]
}

// grow fills the seed and then host after host, each time the one that adds the least time per
// process. Among equal ones it takes the nearest to the submitter.
func (f *field) grow(seed int) []Share {
	n := len(f.Hosts)
	taken := make([]bool, n)
	toTaken := make([]float64, n) // dense: time of a message each way with every process placed so far
	var shares []Share
	for next, left := seed, f.Processes; left > 0; {
		u := min(f.Capacity[next], left)
		shares = append(shares, Share{next, u})
		taken[next] = true
		left -= u
		if f.Job.Pattern == Dense {
			for j := range n {
				toTaken[j] += float64(u) * f.roundTrip(next, j)
			}
		}
		last, least := next, math.Inf(1)
		for j := range n {
			if taken[j] {
				continue
			}
			if c := f.adds(seed, last, j, left, toTaken[j]); c < least {
				next, least = j, c
			}
		}
		if f.Job.Pattern == Dense && left > 0 {
			next = f.lookAhead(next, left, taken, toTaken)
		}
	}
	return shares
}

// adds returns the time per process that filling host j would add.
func (f *field) adds(seed, last, j, left int, toTaken float64) float64 {
	u := float64(min(f.Capacity[j], left))
	inside := f.roundTrip(j, j)
	switch f.Job.Pattern {
	case Dense:
		return toTaken + (u-1)/2*inside
	case Neighbour:
		return (f.roundTrip(last, j) + (u-1)*inside) / u
	}
	master := seed
	if f.home >= 0 {
		master = f.home
	}
	return f.roundTrip(master, j)
}

// lookAhead is called when a dense placement is about to expand to the host next. If its site has
// no process yet, more will follow there, so the distances among them count too: lookAhead compares
// the hosts by which other sites could be entered, and returns the one with the least time per
// process still to place.
func (f *field) lookAhead(next, left int, taken []bool, toTaken []float64) int {
	entered := map[overlay.SiteID]bool{}
	for h := range f.Hosts {
		if taken[h] {
			entered[f.Hosts[h].Node.Site] = true
		}
	}
	if entered[f.Hosts[next].Node.Site] {
		return next
	}
	var doors []int // the best host of each site
	best := map[overlay.SiteID]int{}
	for h := range f.Hosts {
		site := f.Hosts[h].Node.Site
		if entered[site] {
			continue
		}
		if at, known := best[site]; !known {
			best[site] = len(doors)
			doors = append(doors, h)
		} else if toTaken[h] < toTaken[doors[at]] {
			doors[at] = h
		}
	}
	slices.SortStableFunc(doors, func(a, b int) int { return cmp.Compare(toTaken[a], toTaken[b]) })
	least := math.Inf(1)
	for _, h := range doors[:min(autoDoors, len(doors))] {
		if c := toTaken[h] + float64(left-1)/2*f.nearest(h, left, taken); c < least {
			next, least = h, c
		}
	}
	return next
}

// nearest returns the mean time of a message each way between h and the nearest free hosts that
// together take n processes.
func (f *field) nearest(h, n int, taken []bool) float64 {
	var free []int
	for j := range f.Hosts {
		if !taken[j] {
			free = append(free, j)
		}
	}
	slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(f.roundTrip(h, a), f.roundTrip(h, b)) })
	total, left := 0.0, n
	for _, j := range free {
		u := min(f.Capacity[j], left)
		total += float64(u) * f.roundTrip(h, j)
		if left -= u; left == 0 {
			break
		}
	}
	return total / float64(n)
}
