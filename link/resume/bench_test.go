package resume

import (
	"fmt"
	"testing"
)

// path is both halves of a stream over some carriers in a steady state: each frame is pushed,
// written, received and, every 16th, acknowledged.
type path struct {
	s     *Sender
	r     *Receiver
	ready []Carrier
	k     int
}

func newPath(tb testing.TB, carriers int) *path {
	p := &path{s: NewSender(1 << 22), r: NewReceiver(1 << 22)}
	for id := Carrier(1); int(id) <= carriers; id++ {
		if _, err := p.s.Up(id, uint32(id), 0); err != nil {
			tb.Fatal(err)
		}
		p.ready = append(p.ready, id)
	}
	return p
}

const frameSize = 16 << 10

// one passes a frame over the only carrier.
func (p *path) one() error {
	p.s.Push(frameSize)
	f, _ := p.s.Next(1, frameSize)
	if v, err := p.r.Data(f.Off, f.N); err != nil || v.Deliver != frameSize {
		return fmt.Errorf("%+v: %+v, %w", f, v, err)
	}
	return p.ack()
}

// striped passes two frames over two of several carriers; the later one arrives first.
func (p *path) striped() error {
	var f [2]Frame
	for i := range f {
		p.s.Push(frameSize)
		id, _ := p.s.Pick(p.ready)
		f[i], _ = p.s.Next(id, frameSize)
	}
	for i := range f {
		if _, err := p.r.Data(f[1-i].Off, f[1-i].N); err != nil {
			return err
		}
	}
	if _, n, ok := p.r.Advance(); !ok || n != frameSize {
		return fmt.Errorf("%v: stored frame not delivered", p.r)
	}
	return p.ack()
}

func (p *path) ack() error {
	if p.k++; p.k%16 != 0 {
		return nil
	}
	_, err := p.s.Ack(p.r.Tell(1))
	return err
}

// broken passes frames, half of which are lost with a carrier and sent again on the next one.
func (p *path) broken() error {
	for range 8 {
		for _, id := range p.ready {
			p.s.Push(frameSize)
			p.s.Next(id, frameSize)
		}
	}
	dead := p.ready[0]
	p.s.Down(dead)
	p.r.Down(dead)
	next := p.ready[1]
	for p.s.Lost() > 0 {
		p.s.Next(next, frameSize)
	}
	p.k++
	p.ready[0] = Carrier(1000 + p.k)
	if _, err := p.s.Up(p.ready[0], 1, p.s.Sent()); err != nil {
		return err
	}
	return nil
}

func TestNoAllocations(t *testing.T) {
	for _, c := range []struct {
		name     string
		carriers int
		pass     func(*path) error
	}{{"one carrier", 1, (*path).one}, {"four carriers", 4, (*path).striped}, {"deaths", 4, (*path).broken}} {
		p := newPath(t, c.carriers)
		run := func() {
			if err := c.pass(p); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 {
			run()
		}
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%s: %v allocations per frame", c.name, n)
		}
	}
}

func benchmark(b *testing.B, carriers, frames int, pass func(*path) error) {
	p := newPath(b, carriers)
	b.ReportAllocs()
	for b.Loop() {
		if err := pass(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
}

// One carrier: Push, Next and Data of a frame, and an Ack every 16.
func BenchmarkOneCarrier(b *testing.B) { benchmark(b, 1, 1, (*path).one) }

// Striped: as above with Pick, and every other frame out of order.
func BenchmarkStriped4(b *testing.B)  { benchmark(b, 4, 2, (*path).striped) }
func BenchmarkStriped32(b *testing.B) { benchmark(b, 32, 2, (*path).striped) }

// Sending alone.
func BenchmarkNext(b *testing.B) {
	p := newPath(b, 1)
	for b.Loop() {
		p.s.Push(frameSize)
		p.s.Next(1, frameSize)
		p.s.Ack(p.s.Sent())
	}
}

// Receiving alone.
func BenchmarkData(b *testing.B) {
	r, off := NewReceiver(1<<22), uint64(0)
	for b.Loop() {
		r.Data(off, frameSize)
		off += frameSize
	}
}
