package topology

// A Neighbour is one end of an edge as its other end sees it.
type Neighbour struct {
	Rank int // ProcNull beyond the edge of a grid: nothing is sent or received

	// Slot distinguishes the messages between the same two processes: what u sends to its Out
	// neighbour {v, slot} is what v receives from its In neighbour {u, slot}. Two processes can be
	// neighbours several times.
	Slot int
}

// A Neighbourhood is what a neighbourhood collective needs of a topology (8.6): the processes that
// a process receives from and sends to, in the order of the blocks in the receive and in the send
// buffer.
type Neighbourhood struct {
	In, Out []Neighbour
}

// withSlots gives each neighbour the number of its earlier occurrences as its slot. So parallel
// edges are matched first to first, as messages with one tag would be.
func withSlots(ranks []int) []Neighbour {
	seen := make(map[int]int, len(ranks))
	list := make([]Neighbour, len(ranks))
	for i, r := range ranks {
		list[i] = Neighbour{r, seen[r]}
		seen[r]++
	}
	return list
}
