//go:build system

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds what should answer at once; a test for silence takes this long. Where many probes
// run at once and an answer must come, busyPatience allows for a busy machine.
const (
	patience     = 2 * time.Second
	busyPatience = 5 * patience
)

// serveBanner answers each TCP connection to host:port with word and the client's
// address, until the lab is closed.
func serveBanner(t *testing.T, h *Host, port int, word string) {
	t.Helper()
	for _, network := range h.versions("tcp") {
		ln, err := h.Listen(network, fmt.Sprintf(":%d", port))
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
				fmt.Fprintf(c, "%s %v", word, c.RemoteAddr())
				c.Close()
			}
		}()
	}
}

// serveEcho answers each datagram to host:port with the client's address. One that begins with
// "size N" is answered with a packet of N bytes in all, which routers may not fragment.
func serveEcho(t *testing.T, h *Host, port int) {
	t.Helper()
	for _, network := range h.versions("udp") {
		pc, err := h.ListenPacket(network, fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pc.Close() })
		dontFragment(t, pc)
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := pc.ReadFrom(buf)
				if err != nil {
					return
				}
				answer := []byte("echo " + from.String())
				if size := 0; sized(buf, &size) {
					answer = make([]byte, size-udpOverhead)
				}
				pc.WriteTo(answer, from) // an error means that no answer is sent
			}
		}()
	}
}

// udpOverhead is the size of the IPv4 and UDP headers of a datagram.
const udpOverhead = 28

func sized(b []byte, size *int) bool {
	n, _ := fmt.Sscanf(string(b), "size %d", size)
	return n == 1
}

// dontFragment sets DF on what a UDP socket sends; the socket uses the path MTU from ICMP errors.
func dontFragment(t *testing.T, pc net.PacketConn) {
	t.Helper()
	raw, err := pc.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if pc.LocalAddr().(*net.UDPAddr).IP.To4() != nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// versions returns the networks of kind (tcp or udp) on which the host listens.
func (h *Host) versions(kind string) []string {
	if h.Addr6().IsValid() {
		return []string{kind + "4", kind + "6"}
	}
	return []string{kind + "4"}
}

// outcome describes the result of a dial in one word.
func outcome(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "unreach"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EPERM):
		return "drop" // EPERM: the host's own output chain drops datagrams
	default:
		return err.Error()
	}
}

// probe dials and returns the banner's or echo's first word, or how it failed.
func probe(h *Host, network string, to netip.AddrPort) string {
	word, _, _ := strings.Cut(probeAll(h, network, to, patience), " ")
	return word
}

func probeAll(h *Host, network string, to netip.AddrPort, patience time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := h.Dial(ctx, network, to.String())
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if network == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			return outcome(err)
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil {
			return outcome(err)
		}
		return string(buf[:n])
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return outcome(err)
	}
	return string(b)
}

// banner checks that from reaches a port of host to.
func banner(t *testing.T, l *Lab, to string, port uint16, from string) {
	t.Helper()
	h := l.Host(to)
	if _, served := bannersServed.LoadOrStore(h, true); !served {
		serveBanner(t, h, int(port), "banner")
	}
	if got := probe(l.Host(from), "tcp", netip.AddrPortFrom(h.Addr(), port)); got != "banner" {
		t.Errorf("%s to %s:%d: %s", from, to, port, got)
	}
}

var bannersServed sync.Map // *Host
