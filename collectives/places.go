package collectives

import (
	"slices"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// places is a hierarchical algorithm's view of the ranks of a plan: those of each place of the
// widest level that has several.
type places struct {
	ranks [][]int // ranks of each place, in rank order
	lanes [][]int // the same, but the root comes first at its place
	mine  int     // the place of this rank
	home  int     // the place of the root
	width int     // number of lanes: ranks that every place has

	locals map[int]*plan // plans of this place, by root
	heads  map[int]*plan // plans across places, by lane
}

// together is the places of a plan whose ranks are all at one place.
var together = new(places)

// places returns nil if all ranks are together.
func (p *plan) places() *places {
	if p.found == nil {
		p.found = p.findPlaces()
	}
	if p.found == together {
		return nil
	}
	return p.found
}

func (p *plan) findPlaces() *places {
	parts, _ := p.layout.parts()
	if parts == nil {
		return together
	}
	g := &places{ranks: parts, width: p.size, locals: map[int]*plan{}, heads: map[int]*plan{}}
	for k, ranks := range parts {
		lanes := ranks
		if slices.Contains(ranks, p.root) {
			g.home = k
			lanes = append([]int{p.root}, slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r == p.root })...)
		}
		if slices.Contains(ranks, p.rank) {
			g.mine = k
		}
		g.lanes = append(g.lanes, lanes)
		g.width = min(g.width, len(ranks))
	}
	return g
}

// lane returns the ranks of lane j, one for each place. Lane 0 consists of the heads, among them
// the root.
func (g *places) lane(j int) []int {
	ranks := make([]int, len(g.lanes))
	for k := range ranks {
		ranks[k] = g.lanes[k][j]
	}
	return ranks
}

// across returns the plan of a lane; nil for a rank that is not in it.
func (p *plan) across(g *places, j int) *plan {
	if g.lanes[g.mine][j] != p.rank {
		return nil
	}
	q := g.heads[j]
	if q == nil {
		lane := g.lane(j)
		q = p.subPlan(lane, lane[g.home])
		g.heads[j] = q
	}
	return q
}

// local returns the plan of this rank's place, whose root is the place's rank in
// lane j.
func (p *plan) local(g *places, j int) *plan { return p.withinPlace(g, g.lanes[g.mine][j]) }

// withinPlace returns the plan of this rank's place with the given root. Like the plan of a lane it is
// made once.
func (p *plan) withinPlace(g *places, root int) *plan {
	q := g.locals[root]
	if q == nil {
		q = p.subPlan(g.ranks[g.mine], root)
		g.locals[root] = q
	}
	return q
}

// spread takes a region from the root to all: to the head of every place, and from there down to
// the last level.
func (p *plan) spread(r schedule.Region) {
	g := p.places()
	if g == nil {
		p.spreadFlat(r)
		return
	}
	if heads := p.across(g, 0); heads != nil {
		heads.spreadFlat(r)
	}
	p.local(g, 0).spread(r)
}

// linear takes a region from the root directly to all.
func (p *plan) linear(r schedule.Region) {
	for i := 1; i < p.size; i++ {
		p.pass(p.root, r, (p.root+i)%p.size, r)
	}
}

// collapse reduces a region of all ranks place by place, up from the last level. The root gets the
// result, in read-only memory.
func (p *plan) collapse(r schedule.Region) schedule.Region {
	g := p.places()
	if g == nil {
		return p.collapseFlat(r)
	}
	partial := p.local(g, 0).collapse(r)
	if heads := p.across(g, 0); heads != nil {
		return heads.collapseFlat(partial)
	}
	return partial
}

// link is the minimum number of bytes that go along a chain at once: about what a network inside a
// site carries during its latency, or twice as much.
const link = 32 << 10

// links returns the pieces into which a long region is cut: enough to keep the chain full most of
// the time.
func (p *plan) links(r schedule.Region) []schedule.Region {
	return p.pieces(r, min(r.Len/link, 2*p.size))
}

// long reports whether a region is so long that a chain takes less time than a tree, whose root
// sends or receives it log2(p) times; see the costs of the two broadcasts. More regions that follow
// favour the chain further.
func (p *plan) long(r schedule.Region) bool {
	return p.size > 2 && r.Len >= link*max(4, p.size/2)
}

// spreadFlat is spread for ranks that are together.
func (p *plan) spreadFlat(r schedule.Region) {
	if !p.long(r) {
		p.tree(r)
		return
	}
	for _, piece := range p.links(r) {
		p.chain(piece)
	}
}

// collapseFlat is collapse for ranks that are together.
func (p *plan) collapseFlat(r schedule.Region) schedule.Region {
	if !p.long(r) {
		return p.reduceToRoot(r)
	}
	var result schedule.Region
	if p.rank == p.root {
		result = p.Scratch(r.Len)
	}
	for _, piece := range p.links(r) {
		sum := p.chainReduce(piece)
		if p.rank == p.root {
			p.Copy(result.Cut(piece.Off-r.Off, piece.Off-r.Off+piece.Len), sum)
		}
	}
	return result
}

// prefixFlat is prefix for ranks that are together. A chain sends and reduces the least, and the
// reduction of the ranks below arrives when it is needed.
func (p *plan) prefixFlat(acc schedule.Region) (below schedule.Region) {
	if !p.long(acc) {
		return p.prefix(acc)
	}
	if p.rank > 0 {
		below = p.Scratch(acc.Len)
	}
	for _, piece := range p.links(acc) {
		if p.rank > 0 {
			in := below.Cut(piece.Off-acc.Off, piece.Off-acc.Off+piece.Len)
			p.Receive(p.rank-1, in)
			p.Reduce(piece, in)
		}
		if p.rank < p.size-1 {
			p.Send(p.rank+1, piece)
		}
	}
	return below
}

// starReduce leaves at the root, in to, the reduction of a region of all ranks, each of which sends
// its own to the root.
func (p *plan) starReduce(to, own schedule.Region) {
	if p.rank != p.root {
		p.Send(p.root, own)
		return
	}
	p.fold(to, own, p.rank, p.size, p.Receive)
}

// allPairs leaves at all ranks, in to, the reduction of a region of all ranks, which every rank
// sends to every other. All reduce in the same order.
func (p *plan) allPairs(to, own schedule.Region) {
	own = p.scratchCopy(own)
	for i := 1; i < p.size; i++ {
		p.Send((p.rank+i)%p.size, own)
	}
	p.fold(to, own, p.rank, p.size, p.Receive)
}

// fold reduces n operands into to, in their order: operand number mine is own, and get adds the
// receive of any other. own is not a part of to.
func (p *plan) fold(to, own schedule.Region, mine, n int, get func(i int, in schedule.Region)) {
	in := make([]schedule.Region, n)
	for i := range n {
		switch {
		case i == mine:
			in[i] = own
			continue
		case i == n-1:
			in[i] = to
		default:
			in[i] = p.Scratch(own.Len)
		}
		get(i, in[i])
	}
	p.Copy(to, in[n-1])
	for i := n - 2; i >= 0; i-- {
		p.Reduce(to, in[i])
	}
}

// scratchCopy returns a copy of a region that no later result is written to. A rank that sends from
// memory into which it then receives waits for its peer, which may wait for it in turn.
func (p *plan) scratchCopy(r schedule.Region) schedule.Region {
	if r.Space == schedule.Scratch || r.Space == schedule.Input && !p.inPlace {
		return r
	}
	s := p.Scratch(r.Len)
	p.Copy(s, r)
	return s
}

// row is memory for the blocks of some ranks, one behind another: the blocks' own memory if they
// lie like that, or scratch.
type row struct {
	whole schedule.Region
	slots []schedule.Region // one for each rank
	at    []schedule.Region // where each belongs
}

// row returns the row of the blocks that at returns.
func (p *plan) row(ranks []int, at func(rank int) schedule.Region) *row {
	w := &row{}
	n, joined := 0, true
	for i, r := range ranks {
		b := at(r)
		joined = joined && (i == 0 || b.Off == w.at[0].Off+n)
		w.at = append(w.at, b)
		n += b.Len
	}
	if joined {
		w.whole = schedule.Region{Space: w.at[0].Space, Off: w.at[0].Off, Len: n}
		w.slots = w.at
		return w
	}
	w.whole = p.Scratch(n)
	n = 0
	for _, b := range w.at {
		w.slots = append(w.slots, w.whole.Cut(n, n+b.Len))
		n += b.Len
	}
	return w
}

// pack copies the blocks from their own memory into the row.
func (p *plan) pack(w *row) {
	for i := range w.slots {
		p.Copy(w.slots[i], w.at[i])
	}
}

// unpack copies them back.
func (p *plan) unpack(w *row) {
	for i := range w.slots {
		p.Copy(w.at[i], w.slots[i])
	}
}

// packet returns memory for a block of each of some ranks, at one of them; at the others, which do
// not need it, regions that must not be used.
func (p *plan) packet(ranks []int, n, at int) *row {
	w := &row{whole: schedule.Region{Len: len(ranks) * n}}
	if p.rank == at {
		w.whole = p.Scratch(len(ranks) * n)
	}
	for i := range ranks {
		w.slots = append(w.slots, block(w.whole, i, n))
	}
	return w
}

// each calls f with the part of a flit in every slot, and with the same bytes of own, which is as
// long as a slot.
func (w *row) each(flit, own schedule.Region, f func(slot int, in, own schedule.Region)) {
	for i, s := range w.slots {
		from, to := max(s.Off, flit.Off), min(s.Off+s.Len, flit.Off+flit.Len)
		if from < to || own.Len == 0 {
			f(i, w.whole.Cut(from-w.whole.Off, to-w.whole.Off), own.Cut(from-s.Off, to-s.Off))
		}
	}
}
