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
// With several copies it first keeps the copies of each rank at different sites, and then makes the
// cost small. The c-th copies of all ranks, a set, talk among themselves: Auto also starts from sets
// that grow one after the other, each from hosts at sites where no other set is, so that the end of a
// site ends no more than one set.
//
// A job with a graph is placed as by Mapped, with mapping.Search.
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
	autoImprove = 4       // starts to improve, for each copy
	autoSites   = 16      // sites to compare when a placement expands to another
	autoWork    = 2 << 20 // additions to spend on improving each
)

// Place implements Strategy.
func (a Auto) Place(d Demand) ([]Share, error) {
	if d.Job.Graph != nil {
		return Mapped{Algorithm: a.Name(), Network: a.Network}.Place(d)
	}
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
		add(f.grow(seed, f.Processes, make([]bool, len(f.Hosts))))
		if d.Job.Copies > 1 {
			if sets := f.growSets(seed); sets != nil {
				add(sets)
			}
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int { return a.cost.compare(b.cost) })
	best := starts[0]
	for _, s := range starts[:min(autoImprove*d.Job.Copies, len(starts))] {
		if s = f.improve(s, autoWork); s.cost.compare(best.cost) < 0 {
			best = s
		}
	}
	return best.shares, nil
}

// start is a placement and its cost.
type start struct {
	shares []Share
	cost   cost
}

// cost is what Auto minimises.
type cost struct {
	together int     // Plan.Together, which counts first
	time     float64 // Plan.Cost
}

// compare returns a negative number if c is less than d, and a positive one if it is more.
func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.together, d.together), cmp.Compare(c.time, d.time))
}

// field is a demand with the time of a message between every two of its hosts.
type field struct {
	Demand
	width int       // hosts, plus home if that has room only for rank 0
	home  int       // where rank 0 is pinned; -1: not pinned
	time  []float64 // seconds, row by row

	site []int // of each host, by number

	seq    []int // scratch: the host of each process, in the order of numbering
	count  []int // scratch: a set's processes on each host
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
	f := &field{Demand: d, width: w, home: home, time: make([]float64, w*w), site: make([]int, w), count: make([]int, w)}
	number := map[overlay.SiteID]int{}
	for i, from := range hosts {
		if _, known := number[from.Node.Site]; !known {
			number[from.Node.Site] = len(number)
		}
		f.site[i] = number[from.Node.Site]
		for j, to := range hosts {
			f.time[i*w+j] = messageTime(network, d.Job.Message, from, to)
		}
	}
	return f
}

// roundTrip returns the time of a message each way.
func (f *field) roundTrip(i, j int) float64 { return f.time[i*f.width+j] + f.time[j*f.width+i] }

// setSize returns how many processes each set has without a pinned rank 0.
func (f *field) setSize() int { return f.Processes / f.Job.Copies }

// cost returns the cost of the plan for the shares.
func (f *field) cost(shares []Share) cost {
	f.seq = f.seq[:0]
	for _, s := range shares {
		for range s.Processes {
			f.seq = append(f.seq, s.Host)
		}
	}
	total := cost{together: f.pairsAtOneSite()}
	for c := range f.Job.Copies {
		if f.Job.Pattern == Dense {
			total.time += f.denseTime(c)
			continue
		}
		f.Job.Pattern.pairs(f.Job.Ranks, func(a, b int) { total.time += f.roundTrip(f.hostOf(a, c), f.hostOf(b, c)) })
	}
	return total
}

// hostOf returns the host of a copy of a rank, which is the same for all copies of a pinned rank 0.
func (f *field) hostOf(rank, copy int) int {
	switch {
	case f.home < 0:
		return f.seq[copy*f.Job.Ranks+rank]
	case rank == 0:
		return f.home
	}
	return f.seq[copy*(f.Job.Ranks-1)+rank-1]
}

// pairsAtOneSite returns the number of pairs of copies of one rank at one site. A pinned rank 0 has one
// copy.
func (f *field) pairsAtOneSite() (n int) {
	round := f.setSize()
	for p := range f.seq {
		for q := p + round; q < len(f.seq); q += round {
			if f.site[f.seq[p]] == f.site[f.seq[q]] {
				n++
			}
		}
	}
	return n
}

// denseTime computes by hosts what the pattern defines by ranks: every process of a set sends to
// every one of it, minus what it would send to itself.
func (f *field) denseTime(set int) (total float64) {
	f.active = f.active[:0]
	for rank := range f.Job.Ranks {
		h := f.hostOf(rank, set)
		if f.count[h]++; f.count[h] == 1 {
			f.active = append(f.active, h)
		}
		total -= f.time[h*f.width+h]
	}
	for _, i := range f.active {
		row, sum := f.time[i*f.width:], 0.0
		for _, j := range f.active {
			sum += float64(f.count[j]) * row[j]
		}
		total += float64(f.count[i]) * sum
	}
	for _, i := range f.active {
		f.count[i] = 0
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
// process, until it has placed so many processes. Among equal ones it takes the nearest to the
// submitter. It leaves out the hosts that are taken, which must not be needed, and takes those that
// it fills.
func (f *field) grow(seed, processes int, taken []bool) []Share {
	n := len(f.Hosts)
	toTaken := make([]float64, n) // dense: time of a message each way with every process placed so far
	var shares []Share
	for next, left := seed, processes; left > 0; {
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

// growSets grows the sets of copies one after the other, the first from the seed, and each other
// one from where it costs least. No two sets share a host, nor a site as long as there are sites
// enough. It returns nil if the hosts that are left are too few for a set.
func (f *field) growSets(seed int) []Share {
	taken := make([]bool, len(f.Hosts))
	all := f.grow(seed, f.setSize(), taken)
	for range f.Job.Copies - 1 {
		free := f.freeForSet(taken)
		if free == nil {
			return nil
		}
		set := f.cheapestSet(free)
		for _, s := range set {
			taken[s.Host] = true
		}
		all = append(all, set...)
	}
	return all
}

// freeForSet returns what a further set has to leave out of the hosts: sites that another set
// uses, or where the rest is too little only the hosts that are taken, or nil if that is.
func (f *field) freeForSet(taken []bool) []bool {
	used := map[int]bool{}
	for h := range taken {
		if taken[h] {
			used[f.site[h]] = true
		}
	}
	out := make([]bool, len(taken))
	room, apart := 0, 0
	for h := range taken {
		out[h] = used[f.site[h]]
		if !taken[h] {
			room += f.Capacity[h]
		}
		if !out[h] {
			apart += f.Capacity[h]
		}
	}
	switch {
	case apart >= f.setSize():
		return out
	case room >= f.setSize():
		return slices.Clone(taken)
	}
	return nil
}

// cheapestSet grows a set from each of the seeds that are not out, and returns the cheapest.
func (f *field) cheapestSet(out []bool) (best []Share) {
	least := math.Inf(1)
	tried := map[int]bool{} // one seed for each site
	for _, seed := range f.seeds() {
		if out[seed] || tried[f.site[seed]] {
			continue
		}
		tried[f.site[seed]] = true
		set := f.grow(seed, f.setSize(), slices.Clone(out))
		if t := f.setTime(set); t < least {
			best, least = set, t
		}
	}
	return best
}

// setTime returns the time of the messages of a set that is placed by itself.
func (f *field) setTime(shares []Share) float64 {
	alone := *f
	alone.Job.Copies, alone.Processes, alone.seq = 1, f.setSize(), nil
	return alone.cost(shares).time
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
	var entries []int // the best host of each site
	best := map[overlay.SiteID]int{}
	for h := range f.Hosts {
		site := f.Hosts[h].Node.Site
		if entered[site] {
			continue
		}
		if at, known := best[site]; !known {
			best[site] = len(entries)
			entries = append(entries, h)
		} else if toTaken[h] < toTaken[entries[at]] {
			entries[at] = h
		}
	}
	slices.SortStableFunc(entries, func(a, b int) int { return cmp.Compare(toTaken[a], toTaken[b]) })
	least := math.Inf(1)
	for _, h := range entries[:min(autoSites, len(entries))] {
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
