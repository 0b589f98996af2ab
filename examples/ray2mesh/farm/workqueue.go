package farm

// A chunk is rays next to each other. One without any says that there are no
// more.
type chunk struct{ First, Count int64 }

// workQueue holds a dealer's chunks and the clients that wait for some. It decides
// what to send next; it sends nothing itself.
type workQueue struct {
	pile    []chunk                // not handed out
	waiting []int                  // clients that may be sent one chunk each, in the order in which they asked
	closed  bool                   // no chunk will be added
	size    func(client int) int64 // maximum rays of a client's chunk
	given   map[int]map[chunk]bool // chunks that a client has not answered
}

func newWorkQueue(size func(client int) int64) *workQueue {
	return &workQueue{size: size, given: make(map[int]map[chunk]bool)}
}

// put adds a chunk of rays.
func (q *workQueue) put(c chunk) { q.pile = append(q.pile, c) }

// close declares that no chunk will be added any more.
func (q *workQueue) close() { q.closed = true }

// ask records that a client may be sent one more chunk.
func (q *workQueue) ask(client int) { q.waiting = append(q.waiting, client) }

// next returns what to send now, and to whom, if there is anything to send: an
// empty chunk when nothing is left and nothing will come.
func (q *workQueue) next() (client int, c chunk, ok bool) {
	if len(q.waiting) == 0 || len(q.pile) == 0 && !q.closed {
		return 0, chunk{}, false
	}
	client, q.waiting = q.waiting[0], q.waiting[1:]
	if len(q.pile) == 0 {
		return client, chunk{}, true
	}
	top := &q.pile[0]
	c = chunk{top.First, min(top.Count, q.size(client))}
	top.First += c.Count
	if top.Count -= c.Count; top.Count == 0 {
		q.pile = q.pile[1:]
	}
	if q.given[client] == nil {
		q.given[client] = make(map[chunk]bool)
	}
	q.given[client][c] = true
	return client, c, true
}

// answered records that a client has computed a chunk, and reports whether the chunk
// had been given to it and not answered before.
func (q *workQueue) answered(client int, c chunk) bool {
	had := q.given[client][c]
	delete(q.given[client], c)
	return had
}
