package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// newRing returns both ends of a ring in memory of this process.
func newRing(data int) (*Sender, *Receiver) {
	words := make([]uint64, (ringBytes+data+line)/8) // for the alignment
	mem := asBytes(words)
	off := 0
	for addressOf(mem[off:])%line != 0 {
		off += 8
	}
	l := ringOf(mem[off : off+ringBytes+data])
	return &Sender{ring: l}, &Receiver{ring: l}
}

// randomSize prefers sizes near a boundary.
func randomSize(rnd *rand.Rand) int {
	switch rnd.IntN(5) {
	case 0:
		return rnd.IntN(inline + 2)
	case 1:
		return rnd.IntN(3 * line)
	case 2:
		return MaxRecord - rnd.IntN(line+1)
	case 3:
		return rnd.IntN(4 << 10)
	default:
		return rnd.IntN(MaxRecord + 1)
	}
}

// A message is the oracle's record; its bytes follow from its number.
type message struct {
	n, size int
}

func (m message) head() *[HeadSize]byte {
	var h [HeadSize]byte
	binary.NativeEndian.PutUint64(h[:], uint64(m.n))
	binary.NativeEndian.PutUint64(h[8:], uint64(m.size))
	binary.NativeEndian.PutUint64(h[16:], ^uint64(m.n))
	return &h
}

// noise is the source of the messages' bytes.
var noise = func() []byte {
	p := make([]byte, 4*MaxRecord)
	rand.NewChaCha8([32]byte{}).Read(p)
	return p
}()

func (m message) bytes() []byte {
	from := m.n * 31 % (len(noise) - MaxRecord)
	return noise[from : from+m.size]
}

// is compares a record with the expected one.
func (m message) is(head *[HeadSize]byte, payload []byte) bool {
	return *head == *m.head() && bytes.Equal(payload, m.bytes())
}

// split cuts p at random places.
func split(rnd *rand.Rand, p []byte) (parts [][]byte) {
	for rnd.IntN(3) > 0 {
		n := rnd.IntN(len(p) + 1)
		parts, p = append(parts, p[:n]), p[n:]
	}
	return append(parts, p)
}

// A ring is a queue: whatever the order of sends and receives, records come out as they went in,
// and a send fails only when much is in flight.
func TestRingAgainstQueue(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		data := MinData + rnd.IntN(3)*page
		s, r := newRing(data)
		var queue []message
		next, bias, full, held := 0, 5, 0, 0
		for range 20_000 {
			if rnd.IntN(200) == 0 {
				bias = 2 + rnd.IntN(7)
			}
			if rnd.IntN(10) < bias {
				m := message{next, randomSize(rnd)}
				if bias == 8 {
					m.size = rnd.IntN(40) // to run out of cells
				}
				if !s.TrySend(m.head(), split(rnd, m.bytes())...) {
					if full++; held+m.size < data/2-tellBytes-line*len(queue) && len(queue) < cellCount-tellCells {
						t.Fatalf("seed %d: no room for %d bytes with %d bytes of %d and %d records under way", seed, m.size, held, data, len(queue))
					}
					continue
				}
				next++
				queue = append(queue, m)
				held += m.size
				continue
			}
			head, payload, ok, err := r.Next()
			if err != nil || ok != (len(queue) > 0) {
				t.Fatalf("seed %d: Next: %v, %v with %d under way", seed, ok, err, len(queue))
			}
			if !ok {
				continue
			}
			if !queue[0].is(head, payload) {
				t.Fatalf("seed %d: record %d is another", seed, queue[0].n)
			}
			if rnd.IntN(10) == 0 {
				continue // it must arrive again
			}
			held -= queue[0].size
			queue = queue[1:]
			r.Done()
		}
		if full == 0 || next < 1000 || s.Err() != nil {
			t.Errorf("seed %d: %d sent, %d times full, %v", seed, next, full, s.Err())
		}
	}
}

// An empty ring accepts the largest record, wherever its position.
func TestEmptyRingHasRoom(t *testing.T) {
	s, r := newRing(MinData)
	big, head := make([]byte, MaxRecord), new([HeadSize]byte)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		n := rnd.IntN(200)
		if i%3 == 0 {
			n = MaxRecord
		}
		if !s.TrySend(head, big[:n]) {
			t.Fatalf("record %d of %d bytes does not fit", i, n)
		}
		if _, p, ok, err := r.Next(); !ok || err != nil || len(p) != n {
			t.Fatalf("record %d: %d bytes, %v, %v", i, len(p), ok, err)
		}
		r.Done()
	}
}

func TestFullRing(t *testing.T) {
	for _, size := range []int{0, inline, inline + 1, 1000, MaxRecord} {
		s, r := newRing(MinData)
		p, head := make([]byte, size), new([HeadSize]byte)
		fill := func() (n int) {
			for s.TrySend(head, p) {
				n++
			}
			return n
		}
		first := fill()
		if want := min(cellCount, MinData/max(1, roundUp(size))); size > inline && first != want || size <= inline && first != cellCount {
			t.Errorf("%d records of %d bytes fit", first, size)
		}
		for range 3 {
			if !s.Sleep(size) {
				t.Fatalf("%d bytes: a full ring's sender may not sleep", size)
			}
			under, woken := int(s.sent-r.at), 0
			for range under {
				if _, _, ok, err := r.Next(); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if r.Done() {
					woken++
				}
			}
			if woken != 1 {
				t.Errorf("%d bytes: the sender was woken %d times", size, woken)
			}
			if again := fill(); again < under-tellCells-tellBytes/max(line, size) {
				t.Errorf("%d bytes: only %d of %d fit again", size, again, first)
			}
		}
	}
}

func TestSleepAndWake(t *testing.T) {
	s, r := newRing(MinData)
	head := new([HeadSize]byte)
	if s.PeerSleeps() {
		t.Error("a receiver that never slept sleeps")
	}
	if !r.Sleep() {
		t.Fatal("nothing is there, and yet no sleep")
	}
	s.TrySend(head)
	if !s.PeerSleeps() || s.PeerSleeps() {
		t.Error("not to be woken exactly once")
	}
	if r.Sleep() || s.PeerSleeps() {
		t.Error("asleep with a record there")
	}
	if _, _, ok, _ := r.Next(); !ok {
		t.Fatal("no record")
	}
	r.Done()
	r.Sleep()
	r.Awake()
	if s.PeerSleeps() {
		t.Error("asleep after Awake")
	}
	r.Sleep()
	s.TrySend(head)
	r.Next() // finds it by itself
	if s.PeerSleeps() {
		t.Error("asleep after Next")
	}
	if s.Sleep(MaxRecord) || r.ring.sendSleeps.Load() != 0 {
		t.Error("a sender sleeps though there is room")
	}
	for s.TrySend(head) {
	}
	for {
		if _, _, ok, _ := r.Next(); !ok {
			break
		}
		if r.Done() {
			t.Error("a sender that does not sleep is to be woken")
		}
	}
	if s.Sleep(0) { // it last checked when there was no room
		t.Error("a sender sleeps though there is room again")
	}
}

// Both ends park whenever they may: a lost wake-up is a deadlock.
func TestNoWakeUpIsLost(t *testing.T) {
	s, r := newRing(MinData)
	const count = 60_000
	toRecv, toSend := make(chan struct{}, 1), make(chan struct{}, 1)
	wake := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	park := func(who string, c chan struct{}) bool {
		select {
		case <-c:
			return true
		case <-time.After(patience):
			t.Errorf("the %s was not woken", who)
			return false
		}
	}
	sizeOf := func(i int) int { return i * 7919 % (6 << 10) }
	var both sync.WaitGroup
	plain := 0       // the race detector sees that records order it
	both.Go(func() { // ends when all is sent
		for i := range count {
			plain = i
			m := message{i, sizeOf(i)}
			p := m.bytes()
			for !s.TrySend(m.head(), p) {
				if s.Err() != nil || s.Sleep(len(p)) && !park("sender", toSend) {
					return
				}
			}
			if s.PeerSleeps() {
				wake(toRecv)
			}
			for end := time.Now().Add(patience); i == count-1 && s.done < s.sent-tellCells && time.Now().Before(end); {
				s.learn()
			}
		}
	})
	both.Go(func() { // ends when all has arrived
		for i := 0; i < count; {
			head, p, ok, err := r.Next()
			if err != nil {
				t.Error(err)
				return
			}
			if !ok {
				if r.Sleep() && !park("receiver", toRecv) {
					return
				}
				continue
			}
			if !(message{i, sizeOf(i)}).is(head, p) {
				t.Errorf("record %d is another", i)
				return
			}
			if i++; i == count && plain != count-1 {
				t.Error("what the sender did before is not seen")
			}
			if r.Done() {
				wake(toSend)
			}
		}
	})
	both.Wait()
}

func TestSendAndReceiveDoNotAllocate(t *testing.T) {
	s, r := newRing(MinData)
	head, a, b := new([HeadSize]byte), make([]byte, 100), make([]byte, 3000)
	failed := false
	n := testing.AllocsPerRun(2000, func() {
		sent := s.TrySend(head, a, b)
		s.PeerSleeps()
		_, _, came, _ := r.Next()
		if failed = failed || !sent || !came || r.Done(); !failed {
			r.Sleep()
		}
	})
	if failed {
		t.Error("a record was not sent or did not come")
	}
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOversizeIsTheCallersMistake(t *testing.T) {
	s, _ := newRing(MinData)
	defer func() {
		if recover() == nil {
			t.Error("a record too large was taken")
		}
	}()
	s.TrySend(new([HeadSize]byte), make([]byte, MaxRecord), make([]byte, 1))
}

// The receiver of invalid data fails with a permanent error.
func TestReceiverOfNonsense(t *testing.T) {
	word := func(stamp, size uint32) uint64 { return uint64(stamp)<<32 | uint64(size) }
	for _, test := range []struct {
		name   string
		before int // records that precede it
		word   uint64
		at     uint64
	}{
		{"stamp ahead", 0, word(2, 0), 0},
		{"stamp of nobody", 0, word(1<<31, 0), 0},
		{"length without a stamp", 0, 1, 0},
		{"stamp gone", cellCount + 3, 0, 0},
		{"stamp two rounds old", 2*cellCount + 3, word(4, 0), 0},
		{"too long", 0, word(1, MaxRecord+1), 0},
		{"very long", 0, word(1, 1<<32-1), 0},
		{"beyond the end", 0, word(1, inline+1), MinData - inline},
		{"far beyond", 0, word(1, inline+1), 1 << 63},
		{"wrapping around", 0, word(1, MaxRecord), ^uint64(0) - 10},
		{"long beyond the end", 0, word(1, MaxRecord), MinData - MaxRecord + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, r := newRing(MinData)
			for range test.before {
				s.TrySend(new([HeadSize]byte))
				r.Next()
				r.Done()
			}
			c := &s.ring.cells[r.at%cellCount]
			binary.NativeEndian.PutUint64(c.body[:], test.at)
			c.word.Store(test.word)
			for range 2 {
				if _, _, ok, err := r.Next(); ok || !errors.Is(err, ErrCorrupt) {
					t.Errorf("%v, %v", ok, err)
				}
				if r.Sleep() {
					t.Error("it may sleep")
				}
			}
		})
	}
}

// So does the sender, if the receiver claims to have received what was not sent.
func TestSenderToNonsense(t *testing.T) {
	for name, done := range map[string]uint64{"ahead": cellCount + 1, "far ahead": 1 << 63, "back": ^uint64(0)} {
		s, _ := newRing(MinData)
		for s.TrySend(new([HeadSize]byte)) {
		}
		s.ring.done.Store(done)
		for range 2 {
			if s.TrySend(new([HeadSize]byte)) || !errors.Is(s.Err(), ErrCorrupt) || s.Sleep(0) {
				t.Errorf("%s: %v", name, s.Err())
			}
		}
		s.ring.done.Store(cellCount)
		if s.TrySend(new([HeadSize]byte)) {
			t.Errorf("%s: it goes on", name)
		}
	}
}

// Stamps wrap around after 2^32 records.
func TestStampsWrapAround(t *testing.T) {
	s, r := newRing(MinData)
	const first = 1<<32 - cellCount - 5
	s.sent, s.done, r.at, r.acked = first, first, first, first
	for i := range uint64(cellCount) { // as if all of that had been sent
		n := first - cellCount + i
		s.ring.cells[n%cellCount].word.Store(uint64(stamp(n)) << 32)
	}
	s.ring.done.Store(first)
	for i := range 3 * cellCount {
		if _, _, ok, err := r.Next(); ok || err != nil {
			t.Fatalf("record %d is there before it was sent: %v", i, err)
		}
		if !s.TrySend(new([HeadSize]byte), []byte{byte(i)}) {
			t.Fatalf("record %d: no room, %v", i, s.Err())
		}
		if _, p, ok, err := r.Next(); !ok || err != nil || p[0] != byte(i) {
			t.Fatalf("record %d: %v, %v", i, ok, err)
		}
		r.Done()
	}
}

// Whatever is in the cells, Next returns bytes of the ring or fails.
func FuzzNext(f *testing.F) {
	f.Add(uint64(0), []byte{})
	f.Add(uint64(3), binary.NativeEndian.AppendUint64(nil, 4<<32|100))
	f.Add(uint64(cellCount), binary.NativeEndian.AppendUint64(nil, (cellCount+1)<<32|MaxRecord))
	s, r := newRing(MinData)
	all := asBytes(s.ring.cells[:])
	f.Fuzz(func(t *testing.T, at uint64, content []byte) {
		clear(all)
		start := int(at % cellCount * line)
		copy(all[start:], content)
		copy(all, content[min(len(content), len(all)-start):])
		*r = Receiver{ring: s.ring, at: at, acked: at}
		for range cellCount {
			head, p, ok, err := r.Next()
			if err != nil && !errors.Is(err, ErrCorrupt) || ok && (err != nil || head == nil || len(p) > MaxRecord) {
				t.Fatal(head, len(p), ok, err)
			}
			if !ok {
				return
			}
			sum := byte(0)
			for _, b := range p { // all of it can be read
				sum += b
			}
			if in := addressOf(p) - addressOf(all); len(p) > 0 && in > uintptr(cellsBytes+MinData-len(p)) {
				t.Fatalf("%d bytes at %d, outside of the ring", len(p), in)
			}
			r.Done()
		}
	})
}

// Whatever progress the peer claims, the sender writes only into its ring.
func FuzzDone(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 200})
	f.Fuzz(func(t *testing.T, steps []byte) {
		s, _ := newRing(MinData)
		p := make([]byte, MaxRecord)
		for len(steps) >= 9 && s.Err() == nil {
			s.ring.done.Store(binary.LittleEndian.Uint64(steps) % (s.sent + 2))
			s.TrySend(new([HeadSize]byte), p[:int(steps[8])*(MaxRecord/255)])
			steps = steps[9:]
			if s.taken-s.free > MinData || s.next > MinData || s.sent-s.done > cellCount {
				t.Fatalf("%d bytes taken, next at %d, %d records", s.taken-s.free, s.next, s.sent-s.done)
			}
		}
	})
}
