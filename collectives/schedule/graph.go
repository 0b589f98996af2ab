package schedule

// graph is what whoever carries out a schedule asks of it at every step.
type graph struct {
	waits  []int32 // how many steps each waits for
	first  []int32 // where in frees those begin that wait for a step, and for the next one
	frees  []int32
	behind []int32 // of a message, the next one of its kind with the same peer, Slots further; else -1
	turn   []bool  // whether it has none before it
}

// graph returns that of the schedule. It is there from the beginning if a Builder made it.
func (s *Schedule) graph() *graph {
	if s.links != nil {
		return s.links
	}
	return s.link()
}

func (s *Schedule) link() *graph {
	n, total := len(s.Steps), 0
	for i := range s.Steps {
		total += len(s.Steps[i].After)
	}
	ints := make([]int32, 3*n+1+total)
	g := &graph{waits: ints[:n:n], first: ints[n : 2*n+1 : 2*n+1], behind: ints[2*n+1 : 3*n+1 : 3*n+1], frees: ints[3*n+1:], turn: make([]bool, n)}
	for i := range s.Steps {
		g.waits[i] = int32(len(s.Steps[i].After))
		for _, a := range s.Steps[i].After {
			g.first[a]++
		}
	}
	end := int32(0)
	for i := range n { // to where each one's end, from where it is filled backwards
		end += g.first[i]
		g.first[i] = end
	}
	g.first[n] = end
	for i := n - 1; i >= 0; i-- {
		for _, a := range s.Steps[i].After {
			g.first[a]--
			g.frees[g.first[a]] = int32(i)
		}
	}
	s.queue(g)
	return g
}

// queue finds which message is behind which. In most schedules none is.
func (s *Schedule) queue(g *graph) {
	type place struct {
		kind       Kind
		peer, slot int
	}
	var at map[place]int32 // of those that have one behind or before them
	for i := range s.Steps {
		g.behind[i] = -1
		step := &s.Steps[i]
		g.turn[i] = step.Slot < Slots
		if step.Slot >= Slots && at == nil {
			at = map[place]int32{}
		}
	}
	if at == nil {
		return
	}
	for i := range s.Steps {
		if step := &s.Steps[i]; step.Kind == Send || step.Kind == Receive {
			at[place{step.Kind, step.Peer, step.Slot}] = int32(i)
		}
	}
	for p, i := range at {
		if next, ok := at[place{p.kind, p.peer, p.slot + Slots}]; ok {
			g.behind[i] = next
		}
	}
}

// successors returns the steps that wait for one.
func (g *graph) successors(i int) []int32 { return g.frees[g.first[i]:g.first[i+1]] }
