package doctor

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

const (
	stunBound   = 1800 * time.Millisecond
	stunEvery   = 300 * time.Millisecond // between retransmissions of a request
	stunCookie  = 0x2112A442             // RFC 8489 section 5
	stunRequest = 0x0001
	stunSuccess = 0x0101
	stunMapped  = 0x0020 // XOR-MAPPED-ADDRESS, section 14.2
)

// askSTUN asks all servers from one port for its mapped address. A second socket for each server
// receives ICMP errors, which only a connected socket does.
func askSTUN(ctx context.Context, servers []netip.AddrPort) Datagrams {
	ctx, cancel := bounded(ctx, stunBound)
	defer cancel()
	start := time.Now()
	d := Datagrams{Servers: servers, Seen: map[netip.AddrPort]netip.AddrPort{}, Errs: map[netip.AddrPort]string{}}
	pc, err := net.ListenUDP("udp"+version(servers[0]), nil) // all are of one version
	if err != nil {
		for _, s := range servers {
			d.Errs[s] = err.Error()
		}
		return d
	}
	defer pc.Close()
	defer context.AfterFunc(ctx, func() { pc.SetReadDeadline(time.Unix(1, 0)) })()
	d.Local = netip.AddrPortFrom(localTowards(servers[0]), addrPort(pc.LocalAddr()).Port())
	transaction := make([]byte, 12)
	rand.Read(transaction)
	send := func() {
		for _, s := range servers {
			if _, ok := d.Seen[s]; ok {
				continue
			}
			if _, err := pc.WriteToUDPAddrPort(request(transaction), s); err != nil {
				d.Errs[s] = err.Error()
			}
		}
	}
	send()
	buf := make([]byte, 1500)
	for len(d.Seen) < len(servers) && ctx.Err() == nil {
		pc.SetReadDeadline(time.Now().Add(stunEvery))
		if ctx.Err() != nil { // the deadline set just now may have replaced that of AfterFunc
			break
		}
		n, from, err := pc.ReadFromUDPAddrPort(buf)
		if err != nil {
			send()
			continue
		}
		if seen, err := answer(buf[:n], transaction); err == nil {
			d.Seen[netip.AddrPortFrom(from.Addr().Unmap(), from.Port())] = seen
		}
	}
	for _, s := range servers {
		if _, ok := d.Seen[s]; !ok && d.Errs[s] == "" {
			d.Errs[s] = refusal(s, transaction)
		}
	}
	d.Waited = time.Since(start)
	return d
}

// refusal sends one request from a connected socket and returns the error of the network; empty if
// there is none.
func refusal(to netip.AddrPort, transaction []byte) string {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(stunEvery))
	if _, err := c.Write(request(transaction)); err != nil {
		return err.Error()
	}
	if _, err := c.Read(make([]byte, 1500)); err != nil && !timedOut(err) {
		return err.Error()
	}
	return ""
}

// localTowards returns the address from which this host sends to a destination.
func localTowards(to netip.AddrPort) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return addrPort(c.LocalAddr()).Addr()
}

// request returns a STUN Binding request without attributes.
func request(transaction []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, stunRequest)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, stunCookie)
	return append(b, transaction...)
}

// answer parses the mapped address of a Binding success response.
func answer(b, transaction []byte) (netip.AddrPort, error) {
	var none netip.AddrPort
	if len(b) < 20 || binary.BigEndian.Uint16(b) != stunSuccess || binary.BigEndian.Uint32(b[4:]) != stunCookie || string(b[8:20]) != string(transaction) {
		return none, fmt.Errorf("%d bytes that do not answer the question", len(b))
	}
	xor := b[4:20]
	for rest := b[20:]; len(rest) >= 4; {
		kind, size := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if size > len(rest)-4 {
			break
		}
		value := rest[4 : 4+size]
		if kind == stunMapped && (size == 8 || size == 20) {
			port := binary.BigEndian.Uint16(value[2:]) ^ uint16(stunCookie>>16)
			ip := make([]byte, size-4)
			for i := range ip {
				ip[i] = value[4+i] ^ xor[i]
			}
			addr, _ := netip.AddrFromSlice(ip)
			return netip.AddrPortFrom(addr.Unmap(), port), nil
		}
		rest = rest[min(len(rest), 4+(size+3)&^3):]
	}
	return none, fmt.Errorf("an answer without a mapped address")
}
