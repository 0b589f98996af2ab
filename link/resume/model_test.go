package resume

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// bounds is what the exhaustive model explores: everything that can happen with these messages and
// carriers.
type bounds struct {
	name           string
	messages       [2][]int // bytes of each message that an end pushes; nil: not even a fin
	window         int
	started        int  // carriers that are up from the start
	births         int  // carriers over the whole run
	live           int  // carriers at once
	ackFirst       bool // acknowledgements go on the oldest carrier only
	standby        int  // the carrier of this id comes up with weight 0
	switches       int  // times that an end drains a carrier or changes its weight
	advertisements int  // times that an end advertises one byte more than the implicit window
	frames         []int
	atLeast        int // states, so that the model cannot shrink unnoticed
}

// state is a world and the progress of its script.
type state struct {
	*world
	pushed         [2]int
	switches       int
	advertisements int
}

func (s *state) copyFrom(o *state) {
	s.world.copyFrom(o.world)
	s.pushed, s.switches, s.advertisements = o.pushed, o.switches, o.advertisements
}

// action is one thing that can happen.
type action struct {
	verb      string
	end, wire int
	n         int
}

func (a action) String() string {
	return fmt.Sprintf("%s(end %d, wire %d, %d)", a.verb, a.end, a.wire, a.n)
}

func (s *state) String() string {
	return fmt.Sprintf("end 0: %v\n       %v\nend 1: %v\n       %v\n%+v",
		s.ends[0].s, s.ends[0].r, s.ends[1].s, s.ends[1].r, s.wires)
}

// actions lists what may happen next.
func (b *bounds) actions(s *state) []action {
	var acts []action
	open := 0
	for e := range 2 {
		switch script := b.messages[e]; {
		case s.pushed[e] < len(script):
			if s.ends[e].s.Room() >= script[s.pushed[e]] {
				acts = append(acts, action{"push", e, 0, script[s.pushed[e]]})
			}
		case script != nil && s.pushed[e] == len(script):
			acts = append(acts, action{"fin", e, 0, 0})
		}
	}
	for i := range s.wires {
		l := &s.wires[i]
		if !l.closed[0] && !l.closed[1] {
			open++
		}
		for e := range 2 {
			if l.closed[e] {
				continue
			}
			acts = append(acts, action{"close", e, i, 0})
			if len(l.queue[e]) > 0 {
				acts = append(acts, action{"deliver", e, i, 0})
			}
			if !l.up[e] {
				continue
			}
			if n := &s.ends[e]; (n.r.Due() > 0 || s.advertisements > 0 && n.advertised > s.ends[1-e].edge && !s.told(i, 1-e, n.advertised)) && (i == 0 || !b.ackFirst) {
				acts = append(acts, action{"tell", e, i, 0})
			}
			if s.ends[e].s.Sendable() && s.ends[e].s.Uses(l.id) {
				for _, max := range b.frames {
					acts = append(acts, action{"write", e, i, max})
				}
			}
			if s.switches < b.switches {
				acts = append(acts, action{"drain", e, i, 0}, action{"abandon", e, i, 0}, action{"weight", e, i, 0}, action{"weight", e, i, 1})
			}
		}
	}
	for e := range 2 {
		if s.advertisements < b.advertisements && b.messages[1-e] != nil {
			acts = append(acts, action{"advertise", e, 0, 0})
		}
	}
	if int(s.births) < b.births && open < b.live {
		acts = append(acts, action{"connect", 0, 0, 0})
	}
	return acts
}

// told reports whether a wire has such an edge in flight to an end already.
func (s *state) told(i, e int, edge uint64) bool {
	for _, m := range s.wires[i].queue[e] {
		if m.edge >= edge {
			return true
		}
	}
	return false
}

func (b *bounds) apply(s *state, a action) error {
	switch a.verb {
	case "push":
		s.pushed[a.end]++
		if got := s.ends[a.end].s.Push(a.n); got != a.n {
			return fmt.Errorf("Push(%d) = %d with room", a.n, got)
		}
	case "fin":
		s.pushed[a.end]++
		s.ends[a.end].s.Fin()
	case "connect":
		weight := uint32(1)
		if int(s.births)+1 == b.standby {
			weight = 0
		}
		s.connect([2]uint32{weight, weight})
	case "close":
		return s.close(a.end, a.wire)
	case "deliver":
		return s.deliver(a.end, a.wire)
	case "tell":
		s.tell(a.end, a.wire)
	case "write":
		wrote, err := s.write(a.end, a.wire, a.n)
		if err == nil && !wrote {
			return fmt.Errorf("%v: nothing written, though there is something", s.ends[a.end].s)
		}
		return err
	case "advertise":
		s.advertisements++
		s.ends[a.end].advertise(1)
	case "drain":
		s.switches++
		s.ends[a.end].s.Drain(s.wires[a.wire].id)
	case "abandon":
		s.switches++
		return s.ends[a.end].abandon(s.wires[a.wire].id)
	case "weight":
		s.switches++
		s.ends[a.end].s.Weight(s.wires[a.wire].id, uint32(a.n))
	}
	return nil
}

// key returns the state in canonical form: carriers are numbered by age, and what has no influence
// on the future (shares, counts of bytes written) is left out.
func (s *state) key(buf []byte) []byte {
	number := func(id Carrier) byte {
		for i := range s.wires {
			if s.wires[i].id == id {
				return byte(i + 1)
			}
		}
		return 0
	}
	buf = append(buf[:0], byte(s.births), byte(s.switches), byte(s.advertisements), byte(len(s.wires)))
	for e := range s.ends {
		n := &s.ends[e]
		buf = append(buf, byte(n.advertised), byte(n.edge), byte(s.pushed[e]), byte(n.s.q.from), byte(n.s.q.to), byte(n.s.q.len()))
		for i := n.s.q.head; i < len(n.s.q.list); i++ {
			buf = append(buf, byte(n.s.q.list[i].end), number(n.s.q.list[i].owner))
		}
		buf = append(buf, byte(n.r.next), truth(n.r.fin), byte(n.r.ackSent), number(n.r.ackSentOn), byte(len(n.r.stored)))
		for _, p := range n.r.stored {
			buf = append(buf, byte(p.start), byte(p.end))
		}
	}
	for i := range s.wires {
		l := &s.wires[i]
		for e := range 2 {
			buf = append(buf, truth(l.up[e])|truth(l.closed[e])<<1, byte(l.weight[e]), byte(len(l.queue[e])))
			if c := s.ends[e].s.find(l.id); c != nil {
				buf = append(buf, byte(c.weight)<<1|truth(c.draining))
			} else {
				buf = append(buf, 255)
			}
			for _, m := range l.queue[e] {
				buf = append(buf, m.kind, byte(m.off), byte(m.n), truth(m.fin), byte(m.edge))
			}
		}
	}
	return buf
}

func truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// finishes checks that the state is not a deadlock: if nothing more dies, the script is carried out
// and both streams finish, at the latest on one more carrier; and on that one only if some end had
// none to write on.
func (b *bounds) finishes(s *state) error {
	rest := func() error {
		for {
			if err := s.settle(2); err != nil {
				return err
			}
			moved := false
			for e := range 2 {
				n := s.ends[e].s
				for s.pushed[e] < len(b.messages[e]) && n.Room() >= b.messages[e][s.pushed[e]] {
					n.Push(b.messages[e][s.pushed[e]])
					s.pushed[e]++
					moved = true
				}
				if b.messages[e] != nil && s.pushed[e] == len(b.messages[e]) {
					n.Fin()
					s.pushed[e]++
					moved = true
				}
			}
			if !moved {
				return nil
			}
		}
	}
	if err := rest(); err != nil {
		return err
	}
	finished := func() error {
		for e := range 2 {
			if err := s.finished(e); err != nil && b.messages[e] != nil {
				return err
			}
		}
		return nil
	}
	err := finished()
	if err == nil {
		return nil
	}
	if s.served(0) && s.served(1) {
		return fmt.Errorf("stuck with carriers to write on: %w", err)
	}
	s.connect([2]uint32{1, 1})
	if err := rest(); err != nil {
		return err
	}
	return finished()
}

// explore visits every state within the bounds once.
func (b *bounds) explore(t *testing.T) {
	type node struct {
		parent int
		act    action
	}
	nodes := []node{{parent: -1}}
	fail := func(at int, act string, err error) {
		var story []string
		for ; at > 0; at = nodes[at].parent {
			story = append([]string{nodes[at].act.String()}, story...)
		}
		t.Fatalf("%v\nafter:\n  %s\n  %s", err, strings.Join(story, "\n  "), act)
	}
	first := &state{world: newWorld(b.window, 1)}
	for range b.started {
		first.connect([2]uint32{1, 1})
	}
	if err := first.settle(1); err != nil {
		t.Fatal(err)
	}
	seen := map[string]struct{}{string(first.key(nil)): {}}
	frontier, from := []*state{first}, []int{0}
	var buf []byte
	var spares []*state // finished states whose memory is reused
	spare := func() *state {
		if len(spares) == 0 {
			return &state{world: newWorld(b.window, 1)}
		}
		last := spares[len(spares)-1]
		spares = spares[:len(spares)-1]
		return last
	}
	var c *state
	rng := rand.New(rand.NewPCG(1, 1))
	for len(frontier) > 0 {
		var next []*state
		var nextFrom []int
		for k, s := range frontier {
			for _, a := range b.actions(s) {
				if c == nil {
					c = spare()
				}
				c.copyFrom(s)
				if err := b.apply(c, a); err != nil {
					fail(from[k], a.String(), err)
				}
				buf = c.key(buf)
				if _, ok := seen[string(buf)]; ok {
					continue
				}
				seen[string(buf)] = struct{}{}
				nodes = append(nodes, node{from[k], a})
				next, nextFrom = append(next, c), append(nextFrom, len(nodes)-1)
				c = nil
			}
			if err := b.finishes(s); err != nil { // s is not needed any more
				fail(from[k], "and then all is carried to its end", fmt.Errorf("%w\n%v", err, s))
			}
			spares = append(spares, s)
		}
		frontier, from = next, nextFrom
		if !testload.Full() && len(frontier) > sampled {
			rng.Shuffle(len(frontier), func(i, j int) {
				frontier[i], frontier[j] = frontier[j], frontier[i]
				from[i], from[j] = from[j], from[i]
			})
			spares = append(spares, frontier[sampled:]...)
			frontier, from = frontier[:sampled], from[:sampled]
		}
	}
	t.Logf("%d states", len(nodes))
	if testload.Full() && len(nodes) < b.atLeast {
		t.Errorf("only %d states, want at least %d", len(nodes), b.atLeast)
	}
}

// sampled is how many states of each number of steps a model goes on from that is not exhausted.
const sampled = 100

// TestModel explores every interleaving of push, write, deliver, acknowledge,
// connect, close at either end, switch and fin within each of the bounds; or a sample of them.
func TestModel(t *testing.T) {
	for _, b := range []bounds{
		{name: "one way, two carriers", messages: [2][]int{{2, 1}, nil}, window: 3, births: 2, live: 2, frames: []int{1, 3}, atLeast: 173000},
		{name: "one way, one carrier after another", messages: [2][]int{{2, 1}, nil}, window: 2, births: 3, live: 1, frames: []int{2}, atLeast: 72000},
		{name: "one way, three carriers", messages: [2][]int{{2}, nil}, window: 2, started: 3, births: 3, live: 3, ackFirst: true, frames: []int{1}, atLeast: 144000},
		{name: "both ways", messages: [2][]int{{1}, {}}, window: 1, births: 2, live: 2, frames: []int{1}, atLeast: 82000},
		{name: "switch to a standby", messages: [2][]int{{2}, nil}, window: 2, births: 2, live: 2, standby: 2, switches: 1, frames: []int{1}, atLeast: 218000},
		{name: "a window that grows", messages: [2][]int{{1, 1, 1}, nil}, window: 1, births: 2, live: 2, advertisements: 1, frames: []int{1}, atLeast: 257000},
		{name: "a window that grows, one carrier after another", messages: [2][]int{{2, 2}, nil}, window: 2, births: 2, live: 1, advertisements: 2, frames: []int{2}, atLeast: 70000},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.explore(t)
		})
	}
}
