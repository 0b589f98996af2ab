package schedule

// graph holds the dependencies that Run and Simulate look up at every step.
type graph struct {
	waits     []int32 // number of steps that each waits for
	first     []int32 // where the steps that wait for a step begin in frees, and those of the next step
	frees     []int32
	behind    []int32 // of a message, the next one of its kind with the same peer, Slots later; else -1
	unblocked []bool  // whether no message precedes it so
}

// graph returns the graph of the schedule. A Builder makes it together with the schedule.
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
	g := &graph{waits: ints[:n:n], first: ints[n : 2*n+1 : 2*n+1], behind: ints[2*n+1 : 3*n+1 : 3*n+1], frees: ints[3*n+1:], unblocked: make([]bool, n)}
	for i := range s.Steps {
		g.waits[i] = int32(len(s.Steps[i].After))
		for _, a := range s.Steps[i].After {
			g.first[a]++
		}
	}
	end := int32(0)
	for i := range n { // to the end of each step's part, which is filled backwards
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

// queue finds which message follows which. In most schedules none does.
func (s *Schedule) queue(g *graph) {
	type place struct {
		kind       Kind
		peer, slot int
	}
	var at map[place]int32 // of those that have a successor or a predecessor
	for i := range s.Steps {
		g.behind[i] = -1
		step := &s.Steps[i]
		g.unblocked[i] = step.Slot < Slots
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

// successors returns the steps that wait for step i.
func (g *graph) successors(i int) []int32 { return g.frees[g.first[i]:g.first[i+1]] }
