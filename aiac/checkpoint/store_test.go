package checkpoint

import (
	"bytes"
	"testing"
)

// pieces returns the messages that put a state, in pieces of so many bytes.
func pieces(s State, size int) (all []message) {
	id := identify(s)
	for at := 0; at == 0 || at < len(s.Data); at += size {
		end := min(at+size, len(s.Data))
		all = append(all, message{kind: kindPut, iteration: id.iteration, length: id.length, sum: id.sum, offset: uint64(at), data: s.Data[at:end]})
	}
	return all
}

// putAll puts pieces and returns what the last one brought.
func putAll(s *Store, task int, all []message) (taken uint64) {
	for _, m := range all {
		taken = s.put(task, m)
	}
	return taken
}

// holds checks that the newest state of a task is the given one, or none if it has no data.
func holds(t *testing.T, s *Store, want State) {
	t.Helper()
	got, ok := s.Newest(want.Task)
	if ok != (want.Data != nil) || ok && (got.Task != want.Task || got.Iteration != want.Iteration || !bytes.Equal(got.Data, want.Data)) {
		t.Errorf("the store has %+v, %v; want %+v", got, ok, want)
	}
}

// The last whole state stays until a newer one is whole, whatever arrives.
func TestStoreKeepsTheLastWholeState(t *testing.T) {
	first := State{3, 10, []byte("the first state")}
	next := State{3, 20, []byte("another one, longer")}
	damaged := pieces(next, 4)
	damaged[2].data = []byte("oops")
	for name, c := range map[string]struct {
		puts []message
		want State
	}{
		"nothing else":            {nil, first},
		"a part of the next":      {pieces(next, 4)[:4], first},
		"the next":                {pieces(next, 4), next},
		"a piece is missing":      {append(pieces(next, 4)[:2:2], pieces(next, 4)[3:]...), first},
		"a piece comes twice":     {append(pieces(next, 4)[:2:2], pieces(next, 4)[1:]...), first},
		"a damaged piece":         {damaged, first},
		"an older one":            {pieces(State{3, 9, []byte("older")}, 4), first},
		"the same iteration":      {pieces(State{3, 10, []byte("of a successor")}, 4), first},
		"begun again":             {append(pieces(next, 4)[:3:3], pieces(next, 4)...), next},
		"another one in between":  {append(pieces(State{3, 15, []byte("between")}, 4)[:1:1], pieces(next, 4)...), next},
		"the end of another one":  {append(pieces(State{3, 15, next.Data}, 4)[:3:3], pieces(next, 4)[3:]...), first},
		"larger than it may be":   {pieces(State{3, 20, make([]byte, 101)}, 50), first},
		"as large as it may be":   {pieces(State{3, 20, make([]byte, 100)}, 50), State{3, 20, make([]byte, 100)}},
		"more than was announced": {[]message{{iteration: 20, length: 3, data: []byte("four")}}, first},
		"empty":                   {pieces(State{3, 20, []byte{}}, 4), State{3, 20, []byte{}}},
	} {
		s := NewStore(100)
		if taken := putAll(s, 3, pieces(first, 4)); taken != 15 {
			t.Fatalf("%d bytes of the first state are taken", taken)
		}
		taken := putAll(s, 3, c.puts)
		t.Log(name)
		holds(t, s, c.want)
		if c.want.Iteration != first.Iteration && taken != uint64(len(c.want.Data)) {
			t.Errorf("%s: %d bytes are taken", name, taken)
		}
		holds(t, s, State{Task: 4})
	}
}

// A Store has two states of each task at most, and takes no memory for what has not come.
func TestStoreMemory(t *testing.T) {
	s := NewStore(1000)
	s.put(1, message{iteration: 1, length: 1000, data: make([]byte, 10)})
	if n := s.Bytes(); n > 20 {
		t.Errorf("10 bytes of a state take %d", n)
	}
	for i := range uint64(50) {
		putAll(s, 1, pieces(State{1, i + 2, make([]byte, 900+i)}, 7))
		putAll(s, 2, pieces(State{2, i + 2, make([]byte, 900+i)}, 7)[:20])
	}
	if n := s.Bytes(); n > 3000 {
		t.Errorf("states of two tasks of at most 1000 bytes take %d", n)
	}
	s.Clear()
	holds(t, s, State{Task: 1})
	if n := s.Bytes(); n != 0 {
		t.Errorf("%d bytes after Clear", n)
	}
}

func TestStorePieces(t *testing.T) {
	s := NewStore(0)
	state := State{1, 5, []byte("0123456789")}
	putAll(s, 1, pieces(state, 3))
	id, ok := s.newest(1)
	if !ok || id != identify(state) {
		t.Fatalf("newest: %+v, %v", id, ok)
	}
	other := id
	other.sum++
	older := id
	older.iteration--
	for _, c := range []struct {
		id     identity
		offset uint64
		want   string
		ok     bool
	}{{id, 0, "0123", true}, {id, 8, "89", true}, {id, 10, "", true}, {id, 11, "", false}, {other, 0, "", false}, {older, 0, "", false}, {identity{task: 9}, 0, "", false}} {
		if b, ok := s.piece(c.id, c.offset, 4); string(b) != c.want || ok != c.ok {
			t.Errorf("%+v from %d: %q, %v", c.id, c.offset, b, ok)
		}
	}
}

// A piece that cannot lead to a state is refused at once, and so is what follows it.
func TestStoreRefusesAtOnce(t *testing.T) {
	all := pieces(State{1, 5, []byte("0123456789")}, 2)
	for name, bad := range map[string]message{
		"a gap":           all[2],
		"beyond the end":  {iteration: 5, length: 10, sum: all[0].sum, offset: 2, data: make([]byte, 9)},
		"of another size": {iteration: 5, length: 11, sum: all[0].sum, offset: 2, data: []byte("23")},
	} {
		s := NewStore(0)
		if taken := s.put(1, all[0]); taken != 2 {
			t.Fatalf("%d bytes of the first piece are taken", taken)
		}
		if taken := s.put(1, bad); taken != 0 {
			t.Errorf("%s: %d bytes are taken", name, taken)
		}
		if name != "of another size" && s.put(1, all[1]) != 0 {
			t.Errorf("%s: the state goes on", name)
		}
	}
}
