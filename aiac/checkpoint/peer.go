package checkpoint

import (
	"maps"
	"slices"
)

// A piece is sent with its envelope (mpilib's eager messages), so that its sender needs no answer to be rid of it. What is on the way
// to a holder, or from one, is bounded so that a value which comes behind it on the same link waits 10 ms at 100 Mb/s.
const (
	pieceBytes  = 15 << 10
	windowBytes = 8 * pieceBytes
)

// envelope is a message to a task.
type envelope struct {
	to int
	m  message
}

// peer is one task's part of the protocol: it saves, holds and fetches. It knows no sockets, clocks or goroutines;
// its owner reports what came and who was lost, and sends what it returns, in that order. Messages between two live
// tasks come in order; what is lost besides may end a transfer, but leads to no other state.
type peer struct {
	self     int
	places   []Place
	distance Distance
	store    *Store
	piece    uint64 // pieceBytes
	window   uint64 // windowBytes

	holders []int
	streams map[int]*stream // by holder: the states that are under way
	served  map[int]uint64  // by holder: which of the saves it got last
	spare   [][]byte        // memory of states that were sent
	fetches map[uint64]*fetch
	fetched uint64 // the number of the last Fetch
	counts  Counts
}

// Counts says what became of the states that a task saved.
type Counts struct {
	Saved   uint64 // begun to be sent to a holder
	Kept    uint64 // of these: whole at the holder
	Refused uint64 // not taken by the holder: too large for it, no newer than what it has, or damaged
	Lost    uint64 // under way when the holder was lost
	Bytes   uint64 // of states, sent
}

// stream is a state on its way to a holder.
type stream struct {
	id    identity
	data  []byte
	sent  uint64 // bytes
	taken uint64 // of these
}

// newPeer returns the peer of a task. places is copied.
func newPeer(self int, places []Place, distance Distance, store *Store) *peer {
	p := &peer{self: self, places: slices.Clone(places), distance: distance, store: store, piece: pieceBytes, window: windowBytes,
		streams: map[int]*stream{}, served: map[int]uint64{}, fetches: map[uint64]*fetch{}}
	p.holders = Holders(self, p.places, distance)
	return p
}

// target returns the holder whose turn it is: of those that have taken their last state whole, the one that waits longest.
func (p *peer) target() (holder int, ok bool) {
	for _, h := range p.holders {
		if p.streams[h] == nil && (!ok || p.served[h] < p.served[holder]) {
			holder, ok = h, true
		}
	}
	return holder, ok
}

// memory returns memory for a state, which save takes back.
func (p *peer) memory() []byte {
	if len(p.spare) == 0 {
		return nil
	}
	b := p.spare[len(p.spare)-1]
	p.spare = p.spare[:len(p.spare)-1]
	return b[:0]
}

// save begins to send a state, whose data belongs to p from now on, to a holder that target has returned. If
// that was lost meanwhile nothing is sent.
func (p *peer) save(holder int, id identity, data []byte) []envelope {
	if p.places[holder].IsLost || p.streams[holder] != nil {
		p.spare = append(p.spare, data)
		return nil
	}
	p.counts.Saved++
	p.served[holder] = p.counts.Saved
	s := &stream{id: id, data: data}
	p.streams[holder] = s
	return append([]envelope{p.next(holder, s)}, p.fill(holder, s)...)
}

// next returns the next piece of a stream.
func (p *peer) next(holder int, s *stream) envelope {
	b := s.data[s.sent:min(s.sent+p.piece, s.id.length)]
	e := envelope{holder, message{kind: kindPut, iteration: s.id.iteration, length: s.id.length, sum: s.id.sum, offset: s.sent, data: b}}
	s.sent += uint64(len(b))
	p.counts.Bytes += uint64(len(b))
	return e
}

// fill returns the pieces that may be under way besides.
func (p *peer) fill(holder int, s *stream) (out []envelope) {
	for s.sent < s.id.length && s.sent-s.taken < p.window {
		out = append(out, p.next(holder, s))
	}
	return out
}

// end ends a stream, and counts it.
func (p *peer) end(holder int, s *stream, count *uint64) {
	*count++
	delete(p.streams, holder)
	p.spare = append(p.spare, s.data)
}

// receive handles a message of another task.
func (p *peer) receive(from int, m message) []envelope {
	switch m.kind {
	case kindPut:
		return []envelope{{from, message{kind: kindTaken, iteration: m.iteration, offset: p.store.put(from, m)}}}
	case kindTaken:
		return p.taken(from, m)
	case kindAsk:
		return []envelope{{from, p.offer(m)}}
	case kindGet:
		id := identity{task: int(m.task), iteration: m.iteration, sum: m.sum}
		if b, ok := p.store.piece(id, m.offset, int(p.piece)); ok {
			return []envelope{{from, message{kind: kindData, fetch: m.fetch, offset: m.offset, data: b}}}
		}
		return []envelope{{from, p.offer(m)}}
	}
	f := p.fetches[m.fetch]
	if f == nil {
		return nil // it has ended
	}
	switch m.kind {
	case kindNone:
		f.none(from)
	case kindOffer:
		f.offer(from, m, p.store.maxBytes)
	case kindData:
		f.data(from, m, p.piece)
	}
	return p.advance(f)
}

// offer answers an Ask or Get with what is held.
func (p *peer) offer(m message) message {
	id, ok := p.store.newest(int(m.task))
	if !ok {
		return message{kind: kindNone, fetch: m.fetch}
	}
	return message{kind: kindOffer, fetch: m.fetch, iteration: id.iteration, length: id.length, sum: id.sum}
}

// taken handles what a holder says of the state that is on its way there.
func (p *peer) taken(from int, m message) []envelope {
	s := p.streams[from]
	switch {
	case s == nil || m.iteration != s.id.iteration:
	case m.offset == s.id.length && s.sent == s.id.length:
		p.end(from, s, &p.counts.Kept)
	case m.offset == 0:
		p.end(from, s, &p.counts.Refused)
	case m.offset <= s.sent:
		s.taken = m.offset
		return p.fill(from, s)
	}
	return nil
}

// replaced handles that a task has another process, whose Store is empty: what the last one held is lost, so it is the next
// holder that gets a state.
func (p *peer) replaced(task int) []envelope {
	out := p.lost(task)
	p.places[task].IsLost = false
	p.holders = Holders(p.self, p.places, p.distance)
	delete(p.served, task)
	return out
}

// move handles that a task's process says where it runs.
func (p *peer) move(task int, site, node string) {
	p.places[task].Site, p.places[task].Node = site, node
	p.holders = Holders(p.self, p.places, p.distance)
}

// lost handles the loss of a task's process.
func (p *peer) lost(task int) (out []envelope) {
	p.places[task].IsLost = true
	p.holders = Holders(p.self, p.places, p.distance)
	if s := p.streams[task]; s != nil {
		p.end(task, s, &p.counts.Lost)
	}
	for _, number := range slices.Sorted(maps.Keys(p.fetches)) {
		if f := p.fetches[number]; f != nil {
			f.lost(task)
			out = append(out, p.advance(f)...)
		}
	}
	return out
}
