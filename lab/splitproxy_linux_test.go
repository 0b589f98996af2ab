//go:build system

package lab

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestSplitProxy: a node's connection elsewhere comes from the gateway at another port, carries bytes both ways, and is made
// before anybody answers; one to the gateway is the node's own.
func TestSplitProxy(t *testing.T) {
	l := up(t, Spec{Sites: []Site{
		{Name: "site", Preset: "split-tcp", Nodes: Nodes(1)},
		{Name: "other", Preset: "open", Nodes: Nodes(1)},
	}})
	node := l.Host("site/n1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, tc := range []struct {
		at   *Host
		seen netip.Addr
	}{{l.Host("other/n1"), l.Outside("site")}, {l.Host("site/gw"), node.Addr()}} {
		ln := mustListen(t, tc.at)
		done := make(chan net.Addr, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				done <- nil
				return
			}
			defer c.Close()
			io.Copy(c, c)
			done <- c.RemoteAddr()
		}()
		c, err := node.Dial(ctx, "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "hello" {
			t.Errorf("by way of %s: %q, %v", tc.at.Name(), got, err)
		}
		own := c.LocalAddr().(*net.TCPAddr).AddrPort()
		c.Close()
		seen := (<-done).(*net.TCPAddr).AddrPort()
		if seen.Addr().Unmap() != tc.seen || tc.seen != own.Addr() && seen.Port() == own.Port() {
			t.Errorf("%s saw %v, of %v", tc.at.Name(), seen, own)
		}
	}
	c, err := node.Dial(ctx, "tcp", netip.AddrPortFrom(l.Host("other/n1").Addr(), 9).String()) // where nobody listens
	if err != nil {
		t.Fatalf("the middlebox does not answer: %v", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of nobody", n)
	}
}

// mustListen listens at a free port of a host.
func mustListen(t *testing.T, h *Host) (ln net.Listener) {
	t.Helper()
	err := h.Do(func() (err error) {
		ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.Addr(), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
