package sealed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// The benchmark compares, interleaved in one run, an encrypted connection with a crypto/tls one and
// with plain TCP over loopback, both ends in this process:
//
//	go test ./link/sealed -run '^$' -bench Sealed -benchtime 1x

// There are many short repetitions, so that a busy moment of the machine affects neighbours alike:
// the ratio is the median of the ratios of neighbours.
const repetitions = 61

// implementation is one kind of connection.
type implementation struct {
	name string
	open func(testing.TB) (a, b net.Conn)
}

var implementations = []implementation{
	{"sealed", func(t testing.TB) (net.Conn, net.Conn) { return bothConns(sealedPair(t)) }},
	{"crypto/tls", bareTLS},
	{"tcp", dial},
}

func bothConns(a, b *Conn) (net.Conn, net.Conn) {
	a.SetDeadline(time.Time{})
	b.SetDeadline(time.Time{})
	return a, b
}

func bareTLS(t testing.TB) (net.Conn, net.Conn) {
	a, b := dial(t)
	k := newKey(t, "bench")
	config := plainTLS(t, member(t, k, 0))
	x, y := tls.Client(a, config), tls.Server(b, config)
	done := make(chan error, 1)
	go func() { done <- y.Handshake() }()
	if err := x.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return x, y
}

// measure is one figure at one size.
type measure struct {
	figure, unit string
	size, times  int
	run          func(a, b net.Conn, size, times int) (float64, error)
}

var measures = []measure{
	{"half_rtt", "us", 1, 200, pingPong},
	{"half_rtt", "us", 1 << 10, 200, pingPong},
	{"half_rtt", "us", 64 << 10, 40, pingPong},
	{"half_rtt", "us", 1 << 20, 4, pingPong},
	{"stream", "MB/s", 64 << 10, 160, stream},
	{"stream", "MB/s", 1 << 20, 12, stream},
	{"stream", "MB/s", 4 << 20, 4, stream},
	{"cpu", "us", 1 << 20, 12, processor},
}

// pingPong returns half a round trip in microseconds.
func pingPong(a, b net.Conn, size, times int) (float64, error) {
	failed := make(chan error, 1)
	p, q := make([]byte, size), make([]byte, size)
	go func() {
		for range times {
			if _, err := io.ReadFull(b, q); err != nil {
				failed <- err
				return
			}
			if _, err := b.Write(q); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	begin := time.Now()
	for range times {
		if _, err := a.Write(p); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(a, p); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return float64(took.Nanoseconds()) / 2e3 / float64(times), <-failed
}

// stream returns megabytes per second one way, until the last byte's arrival.
func stream(a, b net.Conn, size, times int) (float64, error) {
	failed := make(chan error, 1)
	p, q := make([]byte, size), make([]byte, size)
	begin := time.Now()
	go func() {
		for range times {
			if _, err := a.Write(p); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for range times {
		if _, err := io.ReadFull(b, q); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return float64(size) * float64(times) / 1e6 / took.Seconds(), <-failed
}

// processor returns microseconds of processor time, of both ends, per message of a stream.
func processor(a, b net.Conn, size, times int) (float64, error) {
	before := used()
	_, err := stream(a, b, size, times)
	return float64((used() - before).Microseconds()) / float64(times), err
}

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkSealed(b *testing.B) {
	type ends struct{ a, b net.Conn }
	var conns []ends
	for _, c := range implementations {
		x, y := c.open(b)
		conns = append(conns, ends{x, y})
	}
	for b.Loop() {
		var rows []bench.Row
		for _, m := range measures {
			var cases []func(context.Context) (float64, error)
			for _, c := range conns {
				cases = append(cases, func(context.Context) (float64, error) { return m.run(c.a, c.b, m.size, m.times) })
			}
			if _, err := bench.Interleave(b.Context(), 1, cases...); err != nil { // warm up
				b.Fatal(err)
			}
			values, err := bench.Interleave(b.Context(), repetitions, cases...)
			if err != nil {
				b.Fatal(err)
			}
			rows = append(rows, m.rows(values)...)
		}
		if err := bench.Write(os.Stdout, false, rows...); err != nil {
			b.Fatal(err)
		}
	}
}

// rows compares the encrypted connection with each of the others, with the targets of the package:
// 1.7 times crypto/tls with large messages, and no slower with small ones.
func (m measure) rows(values [][]float64) []bench.Row {
	var rows []bench.Row
	for i := 1; i < len(implementations); i++ {
		var ratios []float64
		for n, v := range values[0] {
			ratios = append(ratios, v/values[i][n])
		}
		r := bench.Row{
			Bench: "sealed", Figure: m.figure, Unit: m.unit, Value: bench.Median(values[0]), Against: implementations[i].name, Ratio: bench.Median(ratios),
			Params: map[string]any{"bytes": m.size, "spread": fmt.Sprintf("%.2f", bench.Spread(ratios))},
		}
		switch {
		case implementations[i].name != "crypto/tls":
		case m.figure == "half_rtt" && m.size == 1:
			r = r.AtMost(1)
		case m.figure == "half_rtt" && m.size == 1<<20:
			r = r.AtMost(1 / 1.7)
		case m.figure == "stream" && m.size >= 1<<20:
			r = r.AtLeast(1.7)
		}
		rows = append(rows, r)
	}
	return rows
}

// Once buffers are warm, nothing is allocated.
func TestNoAllocation(t *testing.T) {
	a, b := sealedPair(t)
	for _, size := range []int{1, 1 << 10, 64 << 10, 1 << 20} {
		p, q := make([]byte, size), make([]byte, size)
		wrote := make(chan error)
		next := make(chan bool)
		go func() {
			for range next {
				_, err := a.WriteVec(p[:size/2], p[size/2:])
				wrote <- err
			}
		}()
		n := testing.AllocsPerRun(50, func() {
			next <- true
			if _, err := io.ReadFull(b, q); err != nil {
				t.Error(err)
			}
			if err := <-wrote; err != nil {
				t.Error(err)
			}
		})
		close(next)
		if n != 0 {
			t.Errorf("%d bytes: %v allocations for a Write and its Reads", size, n)
		}
	}
}
