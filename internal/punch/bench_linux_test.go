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

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
)

// BenchmarkSetup connects two sites behind port-keeping NATs at a round trip of
// 20 ms. It reports the medians in milliseconds: gathering, ICE's checks and the
// QUIC handshake at the controlling end, and the last two together.
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

// BenchmarkThroughput moves blocks one way between two open sites, through a
// Conn and, for comparison, through a TCP connection of the kernel; the two take
// turns. It reports the medians of both in Mb/s and their ratio.
//
// The ratio says as much about the machine as about QUIC: both ends and the
// emulator share its cores, and quic-go drops what arrives while 256 packets wait
// for a connection's goroutine (3 ms at 1 Gb/s). One such loss in slow start
// leaves its congestion control (Cubic, which at 20 ms needs seconds to recover)
// with a small window for the rest of the run.
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
			ca, cb, err := l.punch(context.Background(), "open-a", "open-b", Config{}, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer cb.Abort()
			defer ca.Abort()
			ta, tb := l.tcp(b, "open-a", "open-b")
			var quic, tcp []float64
			for b.Loop() {
				quic = append(quic, rate(b, ca, cb))
				tcp = append(tcp, rate(b, ta, tb))
			}
			slices.Sort(quic)
			slices.Sort(tcp)
			q, t := quic[len(quic)/2], tcp[len(tcp)/2]
			b.ReportMetric(q, "punch-Mb/s")
			b.ReportMetric(t, "tcp-Mb/s")
			b.ReportMetric(q/t, "ratio")
			st := ca.tunnel.quic.ConnectionStats()
			rt := cb.tunnel.quic.ConnectionStats()
			b.ReportMetric(float64(st.PacketsLost)/float64(st.PacketsSent)*1e6, "lost/M")
			b.Logf("sender %+v\nreceiver %+v", st, rt)
		})
	}
}

// tcp connects two open sites.
func (l *testLab) tcp(b *testing.B, from, to string) (net.Conn, net.Conn) {
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
	b.Cleanup(func() {
		c.Close()
		d.Close()
	})
	return c, d
}

// rate sends 96 MiB and returns the Mb/s
// from the first write to the last read.
func rate(b *testing.B, from, to net.Conn) float64 {
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
