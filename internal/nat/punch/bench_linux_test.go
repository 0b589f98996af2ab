//go:build system

package punch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// BenchmarkSetup connects two sites behind port-preserving NATs at a round trip of 20 ms. It
// reports the medians in milliseconds: gathering, ICE's checks and the QUIC handshake at the
// controlling end, and the last two together.
func BenchmarkSetup(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{{"plain", Config{}}, {"low-ttl", Config{LowTTL: true}}} {
		b.Run(c.name, func(b *testing.B) {
			const oneWay = 10 * time.Millisecond
			l := labUp(b, oneWay, "nat")
			var gather, checks, handshake, total []time.Duration
			for b.Loop() {
				began := time.Now()
				probe, err := l.attempt("nat-a", c.cfg)
				if err != nil {
					b.Fatal(err)
				}
				describe(b, probe)
				gather = append(gather, time.Since(began))
				probe.Close()
				ca, cb, err := l.punch(context.Background(), "nat-a", "nat-b", c.cfg, oneWay)
				if err != nil {
					b.Fatal(err)
				}
				s := ca.Setup()
				checks, handshake, total = append(checks, s.Checks), append(handshake, s.Handshake), append(total, s.Total)
				ca.Abort()
				cb.Abort()
			}
			report(b, gather, "gather-ms")
			report(b, checks, "checks-ms")
			report(b, handshake, "quic-ms")
			report(b, total, "connect-ms")
		})
	}
}

func report(b *testing.B, d []time.Duration, unit string) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, unit)
}

// BenchmarkThroughput moves blocks one way between two open sites: through a Conn, as a process
// sees it through Bridges and socket pairs, through a stream of quic-go on plain sockets and
// through a TCP connection of the kernel. These alternate. It reports the medians in Mb/s and the
// ratios to quic-go.
//
// The figures say as much about the machine as about QUIC: both ends, the bridges and the emulator
// share its cores. A burst that the path drops, above all in slow start, costs quic-go's congestion
// control (Cubic) seconds at 20 ms.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		name  string
		shape wan.Shape
	}{
		{"no delay", wan.Shape{}},
		{"10 ms", wan.Shape{Delay: 10 * time.Millisecond}},
		{"10 ms, 1 Gbps", wan.Shape{Delay: 10 * time.Millisecond, Rate: 1e9}},
		{"30 ms, 1 Gbps", wan.Shape{Delay: 30 * time.Millisecond, Rate: 1e9}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := labUp(b, c.shape.Delay, "open")
			for _, way := range [][2]string{{"open-a", "open-b"}, {"open-b", "open-a"}} {
				if err := l.SetWAN(way[0], way[1], c.shape); err != nil {
					b.Fatal(err)
				}
			}
			rates := make(map[string][]float64)
			for b.Loop() {
				for name, join := range l.ways() {
					from, to, end := join(b, "open-a", "open-b")
					rates[name] = append(rates[name], rate(b, from, to))
					end()
				}
			}
			bare := bench.Median(rates["bare"])
			for name, r := range rates {
				b.ReportMetric(bench.Median(r), name+"-Mb/s")
				if name != "bare" {
					b.ReportMetric(bench.Median(r)/bare, name+"/bare")
				}
			}
		})
	}
}

// way makes a connection: the writer, the reader and a function that ends it.
type way func(b *testing.B, from, to string) (io.Writer, deadlineReader, func())

type deadlineReader interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// ways returns what is compared; each makes a new connection.
func (l *testLab) ways() map[string]way {
	return map[string]way{"punch": l.conn, "bridged": l.bridged, "bare": l.bare, "tcp": l.tcp}
}

func (l *testLab) conn(b *testing.B, from, to string) (io.Writer, deadlineReader, func()) {
	b.Helper()
	ca, cb := l.mustPunch(b, from, to)
	return ca, cb, func() {
		ca.Abort()
		cb.Abort()
	}
}

func (l *testLab) mustPunch(b *testing.B, from, to string) (*Conn, *Conn) {
	b.Helper()
	ca, cb, err := l.punch(context.Background(), from, to, Config{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	return ca, cb
}

func (l *testLab) bridged(b *testing.B, from, to string) (io.Writer, deadlineReader, func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var bridges sync.WaitGroup
	ca, cb := l.mustPunch(b, from, to)
	var outer [2]net.Conn
	for i, c := range []*Conn{ca, cb} {
		var inner net.Conn
		inner, outer[i] = socketPair(b)
		bridges.Go(func() { Bridge(ctx, c, inner) })
	}
	return outer[0], outer[1], func() {
		cancel()
		bridges.Wait()
	}
}

// bare connects two open sites by quic-go with the same settings, using only the certificates of
// this package.
func (l *testLab) bare(b *testing.B, from, to string) (io.Writer, deadlineReader, func()) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var ends [2]*quic.Transport
	var ids [2]identity
	for i, site := range []string{from, to} {
		h := l.Host(site + "/n1")
		pc, err := h.ListenPacket("udp", netip.AddrPortFrom(h.Addr(), 0).String())
		if err != nil {
			b.Fatal(err)
		}
		if ids[i], err = newIdentity(); err != nil {
			b.Fatal(err)
		}
		ends[i] = &quic.Transport{Conn: pc}
	}
	ln, err := ends[1].Listen(ids[1].config(ids[0].fingerprint), quicConfig(false))
	if err != nil {
		b.Fatal(err)
	}
	near, err := ends[0].Dial(ctx, ln.Addr(), ids[0].config(ids[1].fingerprint), quicConfig(false))
	if err != nil {
		b.Fatal(err)
	}
	out, err := near.OpenStream()
	if err == nil {
		_, err = out.Write([]byte{hello})
	}
	if err != nil {
		b.Fatal(err)
	}
	far, err := ln.Accept(ctx)
	if err != nil {
		b.Fatal(err)
	}
	in, err := acceptStream(ctx, far)
	if err != nil {
		b.Fatal(err)
	}
	return out, in, func() {
		ln.Close()
		for _, t := range ends {
			closeTransport(t)
		}
	}
}

// tcp connects two open sites by TCP.
func (l *testLab) tcp(b *testing.B, from, to string) (io.Writer, deadlineReader, func()) {
	b.Helper()
	h := l.Host(to + "/n1")
	ln, err := h.Listen("tcp", netip.AddrPortFrom(h.Addr(), 0).String())
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := l.Host(from+"/n1").Dial(context.Background(), "tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	return c, d, func() {
		c.Close()
		d.Close()
	}
}

// rate sends 96 MiB and returns the Mb/s from the first write to the last read.
func rate(b *testing.B, from io.Writer, to deadlineReader) float64 {
	b.Helper()
	const block, blocks = 256 << 10, 384
	var errs [2]error
	var both sync.WaitGroup
	began := time.Now()
	both.Go(func() {
		buf := make([]byte, block)
		for i := 0; i < blocks && errs[0] == nil; i++ {
			_, errs[0] = from.Write(buf)
		}
	})
	both.Go(func() {
		to.SetReadDeadline(time.Now().Add(6 * patience))
		_, errs[1] = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(to, block*blocks), make([]byte, block))
	})
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
	return block * blocks * 8 / 1e6 / time.Since(began).Seconds()
}
