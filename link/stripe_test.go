package link

import (
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// flow is a model of a link on a path: its rate with a number of carriers.
type flow struct {
	rtt   time.Duration
	lossy bool
	rate  func(carriers, sample int) float64 // bytes per second
	held  func(sample int) bool              // nil: always
	death func(sample int) bool              // a carrier dies before the sample; nil: never
}

// play runs a striper for n samples, and returns how many carriers the link had at each and how
// many trials there were.
func (f flow) play(t *testing.T, n int) (had []int, trials int) {
	t.Helper()
	var s striper
	carriers := 1
	for i := range n {
		if f.death != nil && f.death(i) {
			carriers = max(carriers-1, 1)
		}
		x := sample{rtt: f.rtt, lossy: f.lossy, carriers: carriers, held: f.held == nil || f.held(i)}
		x.bytes = uint64(f.rate(carriers, i) * sampleEvery.Seconds())
		switch v := s.next(x); v {
		case addCarrier:
			carriers++
			trials++
		case removeNewest:
			carriers--
		case keepOne:
			carriers = 1
		}
		if carriers < 1 || carriers > MostCarriers {
			t.Fatalf("%d carriers after sample %d", carriers, i)
		}
		had = append(had, carriers)
	}
	return had, trials
}

const (
	megabit = 1e6 / 8
	hour    = int(time.Hour / sampleEvery)
	minute  = int(time.Minute / sampleEvery)
	second  = int(time.Second / sampleEvery)
)

// each is a path on which every carrier brings its own rate, up to the total.
func each(own, most float64) func(int, int) float64 {
	return func(carriers, _ int) float64 { return min(own*float64(carriers), most) * megabit }
}

// TestStriper: how many carriers a flow has in the end.
func TestStriper(t *testing.T) {
	slow := 50 * time.Millisecond
	for _, c := range []struct {
		name    string
		flow    flow
		samples int
		want    int
	}{
		{"each has its own window", flow{rtt: slow, rate: each(30, 1000)}, minute, 8},
		{"the path is full", flow{rtt: slow, rate: each(100, 100)}, 10 * second, 1},
		{"the path is full with four", flow{rtt: slow, rate: each(25, 100)}, minute, 4},
		{"two proxies", flow{rtt: slow, rate: each(100, 200)}, minute, 2},
		{"the path is short", flow{rtt: time.Millisecond, rate: each(30, 1000)}, minute, 1},
		{"the flow is thin", flow{rtt: slow, rate: each(1, 1000)}, minute, 1},
		{"losses keep windows small", flow{rtt: slow, lossy: true, rate: each(3, 1000)}, minute, 8},
		{"losses on a long path", flow{rtt: 200 * time.Millisecond, lossy: true, rate: each(40, 180)}, 5 * second, 2},
		{"losses on a long path, later", flow{rtt: 200 * time.Millisecond, lossy: true, rate: each(40, 1000)}, 30 * second, 8},
		{"the path is long, and nobody knows of losses", flow{rtt: 200 * time.Millisecond, rate: each(0.7, 100)}, 2 * minute, 8},
		{"losses on a path that is full", flow{rtt: slow, lossy: true, rate: each(3, 3)}, 10 * second, 1},
		{"the processes are slow", flow{rtt: slow, rate: each(30, 1000), held: func(int) bool { return false }}, minute, 1},
		{"the flow is short", flow{rtt: slow, rate: each(30, 1000), held: func(i int) bool { return i%(20*second) < second }}, minute, 1},
		{"the path is very long", flow{rtt: 600 * time.Millisecond, rate: each(30, 1000)}, 5 * minute, 8},
		{"the flow ends", flow{rtt: slow, rate: each(30, 1000), held: func(i int) bool { return i < 50*second }}, minute + second, 1},
		{"the flow has just ended", flow{rtt: slow, rate: each(30, 1000), held: func(i int) bool { return i < 55*second }}, minute, 8},
		{"a carrier dies", flow{rtt: slow, rate: each(30, 1000), death: func(i int) bool { return i == minute }}, 2 * minute, 8},
		{"it slows down by itself", flow{rtt: slow, rate: func(carriers, i int) float64 {
			return float64(carriers) * megabit * max(30, 100-7*float64(i))
		}}, 2 * minute, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			had, trials := c.flow.play(t, c.samples)
			if got := had[len(had)-1]; got != c.want {
				t.Errorf("%d carriers after %d trials, want %d: %v", got, trials, c.want, had)
			}
		})
	}
}

// TestStriperIsPatient: where another carrier gains nothing it is tried less and less often.
func TestStriperIsPatient(t *testing.T) {
	had, trials := flow{rtt: 20 * time.Millisecond, rate: each(100, 100)}.play(t, hour)
	if trials < 2 || trials > 8 {
		t.Errorf("%d trials in an hour", trials)
	}
	extra := 0
	for _, n := range had {
		extra += n - 1
	}
	if extra > len(had)/50 {
		t.Errorf("a carrier that gains nothing was there for %d of %d samples", extra, len(had))
	}
}

// TestStriperMakesSense: whatever it sees, it removes only existing carriers, and never has more
// than the maximum.
func TestStriperMakesSense(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		f := flow{
			rtt:   time.Duration(rng.IntN(200)) * time.Millisecond,
			rate:  func(carriers, _ int) float64 { return rng.ExpFloat64() * 1e7 * float64(carriers) },
			held:  func(int) bool { return rng.IntN(5) > 0 },
			death: func(int) bool { return rng.IntN(30) == 0 },
		}
		f.play(t, 10*minute)
	}
}

// TestToldOf: a link decides by itself how many carriers are worth it, except where all would be
// streams of one tunnel; its owner's setting also counts there.
func TestToldOf(t *testing.T) {
	for _, c := range []struct {
		owner int
		class overlay.Technique
		want  int
	}{
		{0, overlay.Direct, 0}, {0, overlay.SimultaneousOpen, 0}, {0, overlay.Relay, 0}, {0, overlay.HolePunching, 1},
		{4, overlay.HolePunching, 4}, {4, overlay.Relay, 4},
	} {
		if got := configuredCarriers(c.owner, c.class); got != c.want {
			t.Errorf("told %d, by %v: %d, want %d", c.owner, c.class, got, c.want)
		}
	}
}

// TestLateLooks: a flow that does not gain from a second carrier does not keep one because its
// samples are late.
func TestLateLooks(t *testing.T) {
	const rate = 50e6 // bytes per second
	var v stripingState
	now, load := time.Unix(1000, 0), stream.Load{}
	used, trials := make([]stream.State, 1, 2), 0
	used[0].Least, used[0].Carrier = 20*time.Millisecond, &stream.Carrier{Owner: new(carrierInfo)}
	for i := range 20 * second {
		late := sampleEvery
		if i%16 == 11 { // with the first trial under way
			late *= 10 // a better path was looked for meanwhile
		}
		if i%2 == 1 {
			late += 2 * stream.Tick
		}
		now = now.Add(late)
		ticks := uint64(late / stream.Tick)
		load.Sent += uint64(rate * late.Seconds())
		load.Ticks, load.Held = load.Ticks+ticks, load.Held+ticks
		switch v.decide(0, load, now, used) {
		case addCarrier:
			trials++
			used = append(used, used[0])
		case removeNewest, keepOne:
			used = used[:1]
		}
		if len(used) > 1 && !v.trying {
			t.Fatalf("after %d looks it has a second carrier for good: %v", i, v.rates)
		}
	}
	if trials != 1 {
		t.Errorf("%d trials", trials)
	}
}

// TestShortPathNeedsNoCarrier: a path is not long because the handshake on it was slow; its kernel
// measures the round trips.
func TestShortPathNeedsNoCarrier(t *testing.T) {
	socket := tcpConn(t)
	for _, c := range []struct {
		name  string
		path  overlay.Path
		tells bool
	}{
		{name: "direct", path: overlay.Path{Technique: overlay.Direct}, tells: true},
		{name: "relay", path: overlay.Path{Technique: overlay.Relay}},
		{name: "gateway", path: overlay.Path{Technique: overlay.Direct, Via: 1}},
	} {
		used := stream.State{Least: time.Minute, Carrier: &stream.Carrier{Owner: &carrierInfo{socket: socket, path: c.path}}}
		if got := leastRTT(used); (got < used.Least) != c.tells || got <= 0 {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// tcpConn returns one end of a connection on which data was acknowledged.
func tcpConn(t *testing.T) *net.TCPConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	if _, err := near.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	return near.(*net.TCPConn)
}

func TestWeigh(t *testing.T) {
	for _, c := range []struct {
		now     []uint32
		brought []uint64
		want    []uint32 // nil: unchanged
	}{
		{[]uint32{0, 0}, []uint64{500, 500}, []uint32{1024, 1024}},
		{[]uint32{1024, 1024}, []uint64{1000, 900}, nil},
		{[]uint32{1024, 1024}, []uint64{1000, 250}, []uint32{1024, 256}},
		{[]uint32{1024, 256}, []uint64{1000, 300}, nil},
		{[]uint32{1024, 256}, []uint64{100, 1000}, []uint32{102, 1024}},
		{[]uint32{1024, 1024}, []uint64{1 << 40, 0}, []uint32{1024, 16}},
		{[]uint32{1024, 16}, []uint64{1 << 40, 0}, nil},
		{[]uint32{1024, 16}, []uint64{0, 0}, nil},
	} {
		got, change := weigh(c.now, c.brought)
		if change != (c.want != nil) {
			t.Errorf("%v with %v: %v, %v", c.now, c.brought, got, change)
		}
		for i := range c.want {
			if got[i] != c.want[i] {
				t.Errorf("%v with %v: %v, want %v", c.now, c.brought, got, c.want)
				break
			}
		}
	}
}
