package allocate

// Spread gives every host one process, nearest first, and then a second, until all are placed: as
// much memory as possible for each process, locality second.
type Spread struct{}

// Name implements Strategy.
func (Spread) Name() string { return "spread" }

// Place implements Strategy. The paper's rounds terminate because the capacities suffice; the
// paper's loop has the same condition, tested one step earlier.
func (Spread) Place(d Demand) ([]Share, error) {
	used := make([]int, len(d.Hosts))
	for left := d.Processes; left > 0; {
		for i := 0; i < len(used) && left > 0; i++ {
			if used[i] < d.Capacity[i] {
				used[i]++
				left--
			}
		}
	}
	return shares(used), nil
}

// Settled implements Strategy: with a host for each process the first round is the last.
func (Spread) Settled(d Demand) bool { return len(d.Hosts) >= d.Processes }

// Concentrate fills each host before the next, nearest first: as much locality as possible.
type Concentrate struct{}

// Name implements Strategy.
func (Concentrate) Name() string { return "concentrate" }

// Place implements Strategy. The paper's outer loop would overwrite the placement of the first
// pass; because the capacities suffice, one pass is enough.
func (Concentrate) Place(d Demand) ([]Share, error) {
	used := make([]int, len(d.Hosts))
	left := d.Processes
	for i := range used {
		used[i] = min(d.Capacity[i], left)
		left -= used[i]
	}
	return shares(used), nil
}

// Settled implements Strategy: once the nearest hosts hold everything, hosts further away get
// nothing.
func (Concentrate) Settled(d Demand) bool { return sum(d.Capacity) >= d.Processes }

// shares drops the hosts without processes.
func shares(used []int) []Share {
	var all []Share
	for i, u := range used {
		if u > 0 {
			all = append(all, Share{i, u})
		}
	}
	return all
}

func sum(all []int) int {
	total := 0
	for _, x := range all {
		total += x
	}
	return total
}
