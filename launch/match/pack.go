package match

import "slices"

// A packing is the state of the third layer: which hosts of a class the processes get.
type packing struct {
	*problem
	hosts  []int
	rooms  []room // of hosts
	groups []int  // with processes here, the bulkiest first
	need   []int  // of groups
	counts [][]int
}

// pack adds to counts the hosts of the processes of one class.
func (pr *problem) pack(c int, totals, counts [][]int) verdict {
	k := &packing{problem: pr, hosts: pr.classes[c].hosts, counts: counts}
	for _, h := range k.hosts {
		k.rooms = append(k.rooms, roomOf(&pr.o.hosts[h]))
	}
	for g := range totals {
		if totals[g][c] > 0 {
			k.groups = append(k.groups, g)
		}
	}
	slices.SortStableFunc(k.groups, func(a, b int) int {
		x, y := &pr.p.Groups[a], &pr.p.Groups[b]
		if x.Cores != y.Cores {
			return y.Cores - x.Cores
		}
		return int(max(-1, min(1, y.Memory-x.Memory)))
	})
	for _, g := range k.groups {
		k.need = append(k.need, totals[g][c])
	}
	return k.place(0, 0)
}

// place finds hosts, from the h-th on, for what the i-th group still needs, and for the groups
// after it.
func (k *packing) place(i, h int) verdict {
	if i == len(k.groups) {
		return found
	}
	if k.need[i] == 0 {
		return k.place(i+1, 0)
	}
	if k.outOfEffort() {
		return gaveUp
	}
	g := &k.p.Groups[k.groups[i]]
	left := 0
	for _, r := range k.rooms[h:] {
		left += r.fits(g)
	}
	if left < k.need[i] {
		return none
	}
	count, before := &k.counts[k.groups[i]][k.hosts[h]], k.rooms[h]
	for n := min(k.need[i], k.maxCopies(i, h)); n >= 0; n-- {
		*count = n
		k.need[i] -= n
		k.rooms[h] = before.remove(g, n)
		v := k.place(i, h+1)
		k.rooms[h] = before
		k.need[i] += n
		if v != none {
			return v
		}
	}
	*count = 0
	return none
}

// maxCopies returns how many processes of the i-th group the h-th host may get: what fits, but no
// more than the host before it got if the two were alike, because otherwise the two could be
// swapped.
func (k *packing) maxCopies(i, h int) int {
	g := k.groups[i]
	most := k.rooms[h].fits(&k.p.Groups[g])
	if h > 0 {
		n := k.counts[g][k.hosts[h-1]]
		now := k.rooms[h-1] // after n were taken
		was := now.remove(&k.p.Groups[g], -n)
		if was == k.rooms[h] {
			most = min(most, n)
		}
	}
	return most
}
