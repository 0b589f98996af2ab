package match

import (
	"math"
	"slices"
)

// A tally is the state of the second layer: how many processes of each group go to each class.
type tally struct {
	*search
	wants  []want // groups in the order of the search
	rooms  []room // class: what is left
	totals [][]int
}

// totals distributes the groups over the classes of their zones.
func (s *search) totals() verdict {
	t := &tally{search: s, rooms: s.emptyRoom(), totals: make([][]int, len(s.p.Groups))}
	for g := range s.chosen {
		w := want{group: g, need: s.p.Groups[g].Processes}
		for _, z := range s.chosen[g] {
			w.classes = append(w.classes, s.zones[z].classes...)
		}
		t.wants = append(t.wants, w)
		t.totals[g] = make([]int, len(s.classes))
	}
	// Those with the fewest classes first, and among them the largest.
	slices.SortStableFunc(t.wants, func(a, b want) int {
		if len(a.classes) != len(b.classes) {
			return len(a.classes) - len(b.classes)
		}
		return b.need*t.p.Groups[b.group].Cores - a.need*t.p.Groups[a.group].Cores
	})
	return t.place(0)
}

// place distributes wants[i] and those after it.
func (t *tally) place(i int) verdict {
	if i == len(t.wants) {
		return t.finish()
	}
	w := &t.wants[i]
	if w.need == 0 {
		return t.place(i + 1)
	}
	if len(w.classes) == 0 {
		return none
	}
	before, c, g := *w, w.classes[0], &t.p.Groups[w.group]
	room := t.rooms[c]
	defer func() { *w, t.rooms[c], t.totals[w.group][c] = before, room, 0 }()
	w.classes = w.classes[1:]
	for n := min(before.need, t.solo[w.group][c], room.fits(g)); n >= 0; n-- {
		if t.outOfEffort() {
			return gaveUp
		}
		w.need, t.rooms[c], t.totals[w.group][c] = before.need-n, room.remove(g, n), n
		if !t.similarPower() || !t.flows(t.wants[i:], t.rooms) {
			continue
		}
		if v := t.place(i); v != none {
			return v
		}
	}
	return none
}

// finish makes each class distribute its processes over its hosts.
func (t *tally) finish() verdict {
	if t.outOfEffort() {
		return gaveUp
	}
	counts := make([][]int, len(t.p.Groups))
	for g := range counts {
		counts[g] = make([]int, len(t.o.hosts))
	}
	for c := range t.classes {
		if v := t.pack(c, t.totals, counts); v != found {
			return v
		}
	}
	t.counts = counts
	return found
}

// similarPower reports whether the groups that must have similar power still can: whatever classes
// take what a group still needs, its power is at least that with the slowest of them, and at most
// that with the fastest.
func (t *tally) similarPower() bool {
	for _, s := range t.p.Similar {
		strongest, weakest := 0.0, math.Inf(1)
		for _, g := range s.Groups {
			if t.p.Groups[g].Processes > 0 {
				least, most := t.power(g)
				strongest, weakest = max(strongest, least), min(weakest, most)
			}
		}
		if !withinPercent(weakest, strongest, float64(s.Within)) {
			return false
		}
	}
	return true
}

// power returns the bounds on a group's power.
func (t *tally) power(g int) (least, most float64) {
	cores := float64(t.p.Groups[g].Cores)
	for c, n := range t.totals[g] {
		least += float64(n) * cores * float64(t.classes[c].speed)
	}
	most = least
	w := &t.wants[slices.IndexFunc(t.wants, func(w want) bool { return w.group == g })]
	if w.need == 0 {
		return least, most
	}
	slow, fast := math.Inf(1), 0.0
	for _, c := range w.classes {
		if t.solo[g][c] > 0 {
			slow, fast = min(slow, float64(t.classes[c].speed)), max(fast, float64(t.classes[c].speed))
		}
	}
	return least + float64(w.need)*cores*slow, most + float64(w.need)*cores*fast
}

// withinPercent reports whether least is at most percent below most.
func withinPercent(least, most, percent float64) bool {
	return least*100 >= most*(100-percent)*(1-1e-12)
}
