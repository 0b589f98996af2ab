package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// verb is the action of a step of a program.
type verb byte

const (
	receives  verb = iota // Take, and Post if there is no message
	sends                 // Arrive, and Keep if there is no receive
	withdraws             // the receive that is number source in order
	removes               // the message that is number source in order
	posts                 // Post without Take, a precondition that the table does not need
	keeps                 // Keep without Arrive, likewise
	verbs
)

type step struct {
	verb        verb
	source, tag int32
}

// do makes one step with table and oracle.
func (p *pair) do(s step) error {
	switch s.verb {
	case receives:
		m, err := p.take(s.source, s.tag)
		if m == nil && err == nil {
			p.post(posted(s.source, s.tag))
		}
		return err
	case sends:
		r, err := p.arrive(s.source, s.tag)
		if r == nil && err == nil {
			p.keep(kept(s.source, s.tag))
		}
		return err
	case withdraws:
		if len(p.o.posted) == 0 {
			return nil
		}
		r := p.o.posted[int(s.source)%len(p.o.posted)]
		if !p.t.Withdraw(r) || !p.o.withdraw(r) || p.t.Withdraw(r) {
			return fmt.Errorf("Withdraw of %v is not true, then false", show(r))
		}
	case removes:
		if len(p.o.kept) == 0 {
			return nil
		}
		m := p.o.kept[int(s.source)%len(p.o.kept)]
		if !p.t.Remove(m) || !p.o.remove(m) || p.t.Remove(m) {
			return fmt.Errorf("Remove of %v is not true, then false", showMessage(m))
		}
	case posts:
		p.post(posted(s.source, s.tag))
	case keeps:
		p.keep(kept(s.source, s.tag))
	}
	return nil
}

// indexAll sets up all missing indexes, as if all had been searched when the queues were long. They
// are dropped when a queue is empty.
func (p *pair) indexAll() {
	for i := range indexes {
		if !p.t.posted.index[i].used && i != byTag {
			p.t.posted.setUp(i)
		}
		if !p.t.kept.index[i].used {
			p.t.kept.setUp(i)
		}
	}
}

// sound checks the invariants of a queue between calls.
func sound[O any](q *queue[O]) error {
	n := 0
	for e := q.first; e != nil; e = e.after {
		if e.in != q || e.before != nil && (e.before.after != e || e.before.seq >= e.seq) || e.after == nil && q.last != e {
			return fmt.Errorf("the order is broken at %d", n)
		}
		n++
	}
	for i := range indexes {
		x := &q.index[i]
		if !x.used {
			if x.keys != 0 || slices.ContainsFunc(x.slots, func(e *entry[O]) bool { return e != nil }) {
				return fmt.Errorf("index %d: unused, and has %d keys", i, x.keys)
			}
			continue
		}
		if !q.indexed {
			return fmt.Errorf("index %d: used, and forgotten", i)
		}
		keys, entries := 0, 0
		for at, head := range x.slots {
			for ; head != nil; head = head.hooks[i].chain {
				keys++
				k := head.key(i)
				if x.slot(k) != &x.slots[at] {
					return fmt.Errorf("index %d: key %x is in a foreign slot", i, uint64(k))
				}
				last := head
				for e := head; e != nil; e = e.hooks[i].next {
					entries++
					if e.in != q || e.key(i) != k || e != head && e.hooks[i].prev != last {
						return fmt.Errorf("index %d: the list of key %x is broken", i, uint64(k))
					}
					last = e
				}
				if head.hooks[i].prev != last {
					return fmt.Errorf("index %d: the head of key %x does not know the last", i, uint64(k))
				}
			}
		}
		if keys != x.keys || entries != n {
			return fmt.Errorf("index %d: %d of %d entries under %d of %d keys", i, entries, n, keys, x.keys)
		}
		if len(x.slots) > max(keepSlots, 8*x.keys) || keys > len(x.slots) {
			return fmt.Errorf("index %d: %d slots for %d keys", i, len(x.slots), x.keys)
		}
	}
	return nil
}

func (p *pair) check(n int32) error {
	if err := p.agree(n); err != nil {
		return err
	}
	if err := sound(&p.t.posted); err != nil {
		return fmt.Errorf("posted: %w", err)
	}
	if err := sound(&p.t.kept); err != nil {
		return fmt.Errorf("kept: %w", err)
	}
	return nil
}

// Every program of up to four steps with two sources, two tags and wildcards, in which source 0 and
// tag 0 come before source 1 and tag 1, since the others differ only in names. The result of a
// probe is compared at the end of each. With the tag "system" it is up to six steps: 3 million programs.
func TestEveryShortProgram(t *testing.T) {
	depth := 4
	if testload.Full() {
		depth = 6
	}
	programs := 0
	var program [6]step
	// run runs a program of n steps on a new pair and returns how many receives
	// and messages are left.
	run := func(n int) (int, int) {
		var sizes [2]int
		for v := range 2 {
			var p pair
			if v == 1 && n == 6 {
				break // so few entries are found without an index: already covered
			}
			err := error(nil)
			for i := 0; i < n && err == nil; i++ {
				if v == 0 {
					p.indexAll()
				}
				err = p.do(program[i])
			}
			if err == nil {
				err = p.check(2)
			}
			if err != nil {
				t.Fatalf("%v (without an index: %v): %v", program[:n], v == 1, err)
			}
			sizes = [...]int{len(p.o.posted), len(p.o.kept)}
		}
		return sizes[0], sizes[1]
	}
	var extend func(n int, source, tag int32)
	extend = func(n int, source, tag int32) { // source and tag: the least not used yet
		programs++
		posted, kept := run(n)
		if n == depth {
			return
		}
		for s := int32(-1); s <= min(source, 1); s++ {
			for g := int32(-1); g <= min(tag, 1); g++ {
				program[n] = step{receives, s, g}
				extend(n+1, max(source, s+1), max(tag, g+1))
				if s >= 0 && g >= 0 {
					program[n].verb = sends
					extend(n+1, max(source, s+1), max(tag, g+1))
				}
			}
		}
		for i := range posted {
			program[n] = step{withdraws, int32(i), 0}
			extend(n+1, source, tag)
		}
		for i := range kept {
			program[n] = step{removes, int32(i), 0}
			extend(n+1, source, tag)
		}
	}
	extend(0, 0, 0)
	t.Logf("%d programs", programs)
}

// randomStep draws a step over n sources and n tags, with one wildcard in three for receives. far
// keeps a queue growing: few entries are matched or removed.
func randomStep(r *rand.Rand, n int32, far bool) step {
	s := step{verb(r.IntN(int(verbs))), r.Int32N(n), r.Int32N(n)}
	if far && r.IntN(3) > 0 {
		s.verb = posts + verb(r.IntN(2))
	}
	switch s.verb {
	case receives, posts:
		if r.IntN(6) == 0 {
			s.source = AnySource
		}
		if r.IntN(6) == 0 {
			s.tag = AnyTag
		}
	case withdraws, removes:
		s.source = r.Int32()
	}
	return s
}

// Long random programs, which grow and shrink the tables.
func TestLongPrograms(t *testing.T) {
	programs := 4
	if testload.Full() {
		programs = 30
	}
	for seed := range uint64(programs) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := int32(1) << r.IntN(11)
		var p pair
		for i := range 20_000 {
			s := randomStep(r, n, i%4000 < 1000)
			if err := p.do(s); err != nil {
				t.Fatalf("seed %d, step %d: %v: %v", seed, i, s, err)
			}
			if i%1999 == 1998 { // the first not early: the indexes are set up late
				if err := p.check(min(n, 8)); err != nil {
					t.Fatalf("seed %d, after step %d, %v: %v", seed, i, s, err)
				}
			}
		}
		for i := 0; !p.t.Empty(); i++ {
			if err := p.do(step{[]verb{withdraws, removes}[i%2], r.Int32(), 0}); err != nil {
				t.Fatalf("seed %d, emptying: %v", seed, err)
			}
		}
		if err := p.check(min(n, 8)); err != nil {
			t.Fatalf("seed %d, emptied: %v", seed, err)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{0x00, 0x00, 0x01, 0x11, 0x12, 0x03, 0x33})
	f.Add([]byte("receives and sends of all kinds, in any order; 0123456789"))
	f.Fuzz(func(t *testing.T, program []byte) {
		var p pair
		for i := 0; i+1 < len(program) && i < 4000; i += 2 {
			s := step{verb(program[i]) % verbs, int32(program[i+1]&15) - 1, int32(program[i+1]>>4) - 1}
			switch s.verb {
			case sends, keeps:
				s.source, s.tag = max(s.source, 0), max(s.tag, 0)
			case withdraws, removes:
				s.source = int32(program[i+1])
			}
			if err := p.do(s); err != nil {
				t.Fatalf("step %d, %v: %v", i/2, s, err)
			}
		}
		if err := p.check(15); err != nil {
			t.Fatal(err)
		}
	})
}

// 10,000 tags that once had a receive leave nothing behind but the few slots that are kept for the
// next burst.
func TestManyTagsLeaveLittle(t *testing.T) {
	const n = 10_000
	for _, order := range []string{"first to last", "last to first", "shuffled"} {
		at := rand.New(rand.NewPCG(1, 1)).Perm(n)
		switch order {
		case "first to last":
			slices.Sort(at)
		case "last to first":
			slices.Sort(at)
			slices.Reverse(at)
		}
		var p pair
		p.indexAll()
		for i := range int32(n) {
			p.t.Post(posted(i%7, i))
			p.t.Keep(kept(7+i%7, i))
		}
		if got := len(p.t.posted.index[byBoth].slots); got < n {
			t.Fatalf("%d slots for %d tags: the test sees nothing", got, n)
		}
		for _, i := range at {
			if p.t.Arrive(int32(i%7), int32(i)) == nil || p.t.Take(int32(7+i%7), int32(i)) == nil {
				t.Fatalf("%s: tag %d is lost", order, i)
			}
		}
		if err := p.check(2); err != nil {
			t.Errorf("%s: %v", order, err)
		}
	}
}

// Neither single messages nor small bursts allocate after the first, also while other entries are
// queued and with all indexes in use.
func TestNoAllocation(t *testing.T) {
	for _, burst := range []int{1, 10, keepSlots - 1} {
		var p pair
		p.indexAll()
		p.t.Post(posted(1, 1<<30))
		p.t.Keep(kept(1, 1<<30+1))
		var rs []*receive
		var ms []*message
		for i := range int32(burst) {
			rs = append(rs, posted(2, i))
			ms = append(ms, kept(i, 2))
		}
		if got := testing.AllocsPerRun(20, func() {
			for i := range rs {
				p.t.Post(rs[i])
				p.t.Keep(ms[i])
			}
			for i := range rs {
				p.t.Arrive(2, int32(i))
				if i%2 == 0 {
					p.t.Take(AnySource, 2)
				} else {
					p.t.Take(int32(i), AnyTag)
				}
			}
			for m := range p.t.Messages {
				if m.Source != 1 {
					p.t.Remove(m)
				}
			}
		}); got != 0 {
			t.Errorf("bursts of %d: %v allocations each", burst, got)
		}
	}
}

// Keys that differ only by powers of two, in the source, the tag or both, do not collide in a few
// slots.
func TestChainsStayShort(t *testing.T) {
	for shift := range 20 {
		for _, way := range []string{"source", "tag", "both", "grid"} {
			var x index[int]
			for i := range int32(1 << 10) {
				e := &entry[int]{Source: 5, Tag: 5}
				switch way {
				case "source":
					e.Source = i << shift
				case "tag":
					e.Tag = i << shift
				case "both":
					e.Source, e.Tag = i<<shift, i<<shift
				case "grid":
					e.Source, e.Tag = (i&31)<<shift, (i>>5)<<shift
				}
				x.add(byBoth, e)
			}
			longest := 0
			for _, e := range x.slots {
				n := 0
				for ; e != nil; e = e.hooks[byBoth].chain {
					n++
				}
				longest = max(longest, n)
			}
			if longest > 10 { // chance alone gives 5 or 6
				t.Errorf("%s by 2^%d: a chain of %d among %d keys", way, shift, longest, x.keys)
			}
		}
	}
}

// Both iterations allow the current entry to be removed, and end when yield returns false.
func TestTakeOutWhileIterating(t *testing.T) {
	var p pair
	for i := range int32(6) {
		p.t.Post(posted(i%2, i))
		p.t.Keep(kept(2+i%2, i))
	}
	for r := range p.t.Posted {
		if r.Source == 1 {
			p.t.Withdraw(r)
		}
		if r.Tag == 4 {
			break
		}
	}
	for m := range p.t.Messages {
		if m.Source == 2 {
			p.t.Remove(m)
		}
		if m.Tag == 3 {
			break
		}
	}
	var tags []int32
	for r := range p.t.Posted {
		tags = append(tags, r.Tag)
	}
	for m := range p.t.Messages {
		tags = append(tags, m.Tag)
	}
	if want := []int32{0, 2, 4, 5, 1, 3, 4, 5}; !slices.Equal(tags, want) {
		t.Errorf("left are %v, want %v", tags, want)
	}
}

// An entry of another table, or of none, is not removed from this one, and nothing can be put in
// twice.
func TestForeignEntries(t *testing.T) {
	var a, b table
	r, m := posted(1, 1), kept(1, 1)
	if a.Withdraw(r) || a.Remove(m) {
		t.Error("taken out of a table that was never used")
	}
	a.Post(r)
	a.Keep(m)
	if b.Withdraw(r) || b.Remove(m) {
		t.Error("taken out of the wrong table")
	}
	for name, f := range map[string]func(){"Post": func() { b.Post(r) }, "Keep": func() { a.Keep(m) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of an entry in use did not panic", name)
				}
			}()
			f()
		}()
	}
	if a.Take(1, 1) != m || a.Arrive(1, 1) != r || !a.Empty() {
		t.Error("the first table lost its entries")
	}
}
