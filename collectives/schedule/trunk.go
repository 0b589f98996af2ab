package schedule

import "time"

// trunk is a site's path, for one message at a time: the pairs of ranks with messages for it take
// turns, as their connections do.
type trunk struct {
	flows []flow
	next  int // whose turn it is
	busy  bool
}

// flow holds the waiting messages of a pair of ranks.
type flow struct {
	from, to int32
	waiting  []int32
}

func (t *trunk) queue(m *mail, letter int32) {
	for i := range t.flows {
		if f := &t.flows[i]; f.from == m.from && f.to == m.to {
			f.waiting = append(f.waiting, letter)
			return
		}
	}
	t.flows = append(t.flows, flow{m.from, m.to, []int32{letter}})
}

// nextSender removes the message whose turn it is, if the path is free and one waits.
func (t *trunk) nextSender() (letter int32, ok bool) {
	if t.busy {
		return 0, false
	}
	for range t.flows {
		f := &t.flows[t.next]
		t.next = (t.next + 1) % len(t.flows)
		if len(f.waiting) > 0 {
			letter, f.waiting = f.waiting[0], f.waiting[1:]
			t.busy = true
			return letter, true
		}
	}
	return 0, false
}

// advance moves a message to its next stage.
func (s *simulation) advance(what happening, letter int32) error {
	m := &s.mail[letter]
	from, to := s.grid.site(int(m.from)), s.grid.site(int(m.to))
	switch what {
	case leave:
		s.connect(m)
		s.up[from].queue(m, letter)
		s.depart(from)
	case left:
		s.up[from].busy = false
		s.depart(from)
	case reach:
		s.down[to].queue(m, letter)
		s.enter(to)
	case knock:
		r := &s.ranks[m.to]
		r.ingress = max(s.now, r.ingress) + m.path.sendTime(m.length)
		s.push(event{at: r.ingress, item: letter, what: arrival})
	case arrival, landing:
		if from != to && what == arrival {
			s.down[to].busy = false
			s.enter(to)
		}
		if m.held > s.now {
			s.push(event{at: m.held, item: letter, what: landing})
			return nil
		}
		m.arrived = true
		if m.receive > 0 {
			return s.deliver(int(m.to), letter)
		}
	}
	return nil
}

// depart makes the next message leave a site.
func (s *simulation) depart(site int) {
	letter, ok := s.up[site].nextSender()
	if !ok {
		return
	}
	m := &s.mail[letter]
	s.push(event{at: s.now + m.path.sendTime(m.length), item: letter, what: left})
	s.push(event{at: s.now + s.longer(m.path.Latency), item: letter, what: reach})
}

// enter makes the next message enter a site.
func (s *simulation) enter(site int) {
	if letter, ok := s.down[site].nextSender(); ok {
		m := &s.mail[letter]
		s.push(event{at: s.now + m.path.sendTime(m.length), item: letter, what: arrival})
	}
}

// connection is what a pair of ranks at two sites has sent.
type connection struct {
	since time.Duration // when the first byte of it left
	bytes int
}

// connect sets how long its connection delays a message, at least.
func (s *simulation) connect(m *mail) {
	if m.path.Window == 0 {
		return
	}
	if s.connections == nil {
		s.connections = make([]connection, len(s.all)*len(s.all))
	}
	c := &s.connections[int(m.from)*len(s.all)+int(m.to)]
	if c.bytes == 0 {
		c.since = s.now
	}
	c.bytes += m.length
	m.held = c.since + m.path.opens(c.bytes)
}
