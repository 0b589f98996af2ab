package farm

// A chunk is rays next to each other. One without any says that there are no
// more.
type chunk struct{ First, Count int64 }

// workQueue is where a dealer's chunks lie, and who waits for some. It is told what
// happens and says what to send; it sends nothing itself.
type workQueue struct {
	pile    []chunk                // not handed out
	waiting []int                  // clients that may be sent one chunk each, in the order in which they asked
	closed  bool                   // nothing will be put on the pile any more
	size    func(client int) int64 // rays of what a client gets at once
	given   map[int]map[chunk]bool // what a client has and has not answered
}

func newWorkQueue(size func(client int) int64) *workQueue {
	return &workQueue{size: size, given: make(map[int]map[chunk]bool)}
}

// put adds rays to be handed out.
func (d *workQueue) put(c chunk) { d.pile = append(d.pile, c) }

// close says that nothing will be put any more.
func (d *workQueue) close() { d.closed = true }

// ask notes that a client may be sent one more chunk.
func (d *workQueue) ask(client int) { d.waiting = append(d.waiting, client) }

// next returns what to send now, and to whom, if there is anything to send: an
// empty chunk when nothing is left and nothing will come.
func (d *workQueue) next() (client int, c chunk, ok bool) {
	if len(d.waiting) == 0 || len(d.pile) == 0 && !d.closed {
		return 0, chunk{}, false
	}
	client, d.waiting = d.waiting[0], d.waiting[1:]
	if len(d.pile) == 0 {
		return client, chunk{}, true
	}
	top := &d.pile[0]
	c = chunk{top.First, min(top.Count, d.size(client))}
	top.First += c.Count
	if top.Count -= c.Count; top.Count == 0 {
		d.pile = d.pile[1:]
	}
	if d.given[client] == nil {
		d.given[client] = make(map[chunk]bool)
	}
	d.given[client][c] = true
	return client, c, true
}

// answered notes that a client has computed a chunk, and says whether it had been
// given that one and not answered it before.
func (d *workQueue) answered(client int, c chunk) bool {
	had := d.given[client][c]
	delete(d.given[client], c)
	return had
}
