// Package gridtest builds the labs in which techniques are tried on every pair of gateways: behind
// each preset there are two sites with one node each, and two public hosts answer with the source
// address of each question. It knows no technique and has no state of its own.
package gridtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// A Grid is a running lab.
type Grid struct {
	*lab.Lab
	Reflectors []netip.AddrPort // the two public hosts, on port 443
}

// Up builds a lab with sites a-PRESET and b-PRESET for every preset, oneWay apart from each other.
// answer serves one connection to a reflector, which is kept until the other end closes it. The
// lab ends with the test.
func Up(t *testing.T, oneWay time.Duration, answer func(context.Context, net.Conn) error, presets ...string) *Grid {
	t.Helper()
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: oneWay}},
		Sites: []lab.Site{{Name: "v", Preset: lab.Public, Nodes: lab.Nodes(2)}},
	}
	for _, p := range presets {
		spec.Sites = append(spec.Sites,
			lab.Site{Name: "a-" + p, Preset: p, Nodes: lab.Nodes(1)},
			lab.Site{Name: "b-" + p, Preset: p, Nodes: lab.Nodes(1)})
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &Grid{Lab: l}
	for _, name := range []string{"v/n1", "v/n2"} {
		g.Reflectors = append(g.Reflectors, serveReflector(t, l.Host(name), answer))
	}
	return g
}

// Node returns the node behind a preset on side a or b.
func (g *Grid) Node(side, preset string) *lab.Host { return g.Host(side + "-" + preset + "/n1") }

// serveReflector serves on port 443, the only one that every site with any egress can dial.
func serveReflector(t *testing.T, h *lab.Host, answer func(context.Context, net.Conn) error) netip.AddrPort {
	t.Helper()
	ln, err := h.Listen("tcp", ":443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := answer(t.Context(), c); err == nil {
					io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return netip.AddrPortFrom(h.Addr(), 443)
}

// Exchange moves 200 kB both ways at once, to the ends of stream, and checks every byte.
func Exchange(a, b *net.TCPConn) error {
	const size = 200_000
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i, c := range []*net.TCPConn{a, b} {
		c.SetDeadline(time.Now().Add(time.Minute))
		all.Go(func() {
			_, errs[2*i] = c.Write(bytes.Repeat([]byte{byte('a' + i)}, size))
			c.CloseWrite()
		})
		all.Go(func() {
			got, err := io.ReadAll(c)
			if want := bytes.Repeat([]byte{byte('b' - i)}, size); err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%d bytes came, or wrong ones", len(got))
			}
			errs[2*i+1] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Limited runs jobs, n at a time, and returns when all have ended.
func Limited(n int, jobs []func()) {
	tokens := make(chan struct{}, n)
	var all sync.WaitGroup
	for _, job := range jobs {
		tokens <- struct{}{}
		all.Go(func() {
			defer func() { <-tokens }()
			job()
		})
	}
	all.Wait()
}

// The presets whose nodes may dial any port, in groups that behave alike in a simultaneous open.
var (
	Reachable = []string{"open", "nat-fullcone", "nat-1to1"} // a SYN from anywhere can arrive
	ByFlags   = []string{"syn-drop", "syn-reset"}            // a bare SYN never arrives
	Tracking  = []string{                                    // a SYN arrives after another has left
		"stateful", "stateful-reject", "stateful-strict", "stateful-strict-new", "stateful-noloose",
		"port-range", "nat", "nat-answers", "nat-random",
	}
	All = slices.Concat(Reachable, ByFlags, Tracking, []string{"nat-symmetric"})
)

// Times formats the spread of durations for logs.
func Times(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	slices.Sort(took)
	at := func(i int) time.Duration { return took[i].Round(time.Millisecond) }
	n := len(took)
	return fmt.Sprintf("p50 %v, p90 %v, max %v", at(n/2), at(n*9/10), at(n-1))
}
