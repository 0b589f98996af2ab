package rtt

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Of returns the kernel's estimate of a TCP connection's path (TCP_INFO), up to an HTTP proxy if there is one on it; the zero
// Estimate if the kernel does not know, or there is no TCP connection under conn.
func Of(conn net.Conn) Estimate {
	for {
		c, ok := conn.(interface{ NetConn() net.Conn }) // TLS, or a wrapper whose first bytes were already read
		if !ok {
			break
		}
		conn = c.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return Estimate{}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Estimate{}
	}
	var e Estimate
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			e = OfInfo(info)
		}
	})
	return e
}

// OfInfo is Of for what the kernel has returned.
func OfInfo(info *unix.TCPInfo) Estimate {
	return Estimate{SRTT: time.Duration(info.Rtt) * time.Microsecond, Var: time.Duration(info.Rttvar) * time.Microsecond}
}
