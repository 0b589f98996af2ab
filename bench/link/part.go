package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The command line of an end, in C or Go, names the congestion control to use, if the system
// permits it, and says whether to listen or to dial. The end prints
//
//	listening PORT     if it listens, then
//	ready CONGESTION   when it is connected, with the congestion control in use
//
// and carries out one order per line of input until its end. Both ends get
// the same order at the same time:
//
//	trips SIZE COUNT   messages go to and fro
//	stream SIZE COUNT  messages go from the dialler to the other end, then a byte back
//
// It answers each with "ok A B", in ns: for trips, the median and the 99th percentile of COUNT
// round trips, after a tenth as many to warm up; for a stream, its duration. Only the dialler's
// answer counts.
const (
	orderTrips  = "trips"
	orderStream = "stream"
)

// joinBound is the timeout for two ends to connect.
const joinBound = 10 * time.Second

// maxMessage is the maximum message size of an order.
const maxMessage = 64 << 20

// Part runs an end in this process. Its role is the name of an implementation, a congestion
// control, and "listen ADDRESS" or "dial ADDRESS PORT".
func Part(ctx context.Context, role string, in io.Reader, out io.Writer) (err error) {
	words := strings.Fields(role)
	if len(words) < 4 {
		return fmt.Errorf("bench link: %q is no role of an end: want an implementation, a congestion control, listen or dial, and an address", role)
	}
	at := slices.IndexFunc(Transports, func(c Transport) bool { return c.Name() == words[0] })
	if at < 0 {
		return fmt.Errorf("bench link: there is no implementation %q", words[0])
	}
	dialled := words[2] == "dial"
	raw, err := connect(ctx, dialled, words[3:], out)
	if err != nil {
		return fmt.Errorf("bench link: %s: %w", words[0], err)
	}
	congestion, err := setCongestion(raw, words[1])
	if err != nil {
		raw.Close()
		return fmt.Errorf("bench link: %s: congestion control: %w", words[0], err)
	}
	joining, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	e, err := Transports[at].Open(joining, raw, dialled)
	if err != nil {
		raw.Close()
		return fmt.Errorf("bench link: opening %s: %w", words[0], err)
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	fmt.Fprintln(out, "ready", congestion)
	return obey(e, dialled, in, out)
}

func connect(ctx context.Context, dialled bool, where []string, out io.Writer) (*net.TCPConn, error) {
	if dialled && len(where) == 2 {
		d := net.Dialer{Timeout: joinBound}
		c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort(where[0], where[1]))
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	addr, err := netip.ParseAddr(where[0])
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	fmt.Fprintln(out, "listening", ln.Addr().(*net.TCPAddr).Port)
	ln.SetDeadline(time.Now().Add(joinBound))
	return ln.AcceptTCP()
}

// obey carries out the orders from in.
func obey(e End, dialled bool, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var what string
		var size, count int
		if _, err := fmt.Sscan(lines.Text(), &what, &size, &count); err != nil {
			return fmt.Errorf("order %q: %w", lines.Text(), err)
		}
		if size < 1 || size > maxMessage || count < 1 {
			return fmt.Errorf("order %q: size or count", lines.Text())
		}
		var a, b time.Duration
		var err error
		switch {
		case what == orderTrips && dialled:
			a, b, err = trips(e, size, count)
		case what == orderTrips:
			err = echo(e, size, count+count/10)
		case what == orderStream && dialled:
			a, err = stream(e, make([]byte, size), count)
		case what == orderStream:
			err = sink(e, make([]byte, size), count)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return fmt.Errorf("order %q: %w", lines.Text(), err)
		}
		fmt.Fprintln(out, "ok", a.Nanoseconds(), b.Nanoseconds())
	}
	return lines.Err()
}

// trips sends a message back and forth and returns the median and the 99th percentile of round
// trips.
func trips(e End, size, count int) (p50, p99 time.Duration, err error) {
	took := make([]time.Duration, count)
	out, in := make([]byte, size), make([]byte, size)
	last := size - 1
	for i := -(count / 10); i < count; i++ { // the first warm up
		mark := byte(i)
		start := time.Now()
		if err := say(e, out, mark, mark); err != nil {
			return 0, 0, err
		}
		if err := e.Receive(in); err != nil {
			return 0, 0, err
		}
		t := time.Since(start)
		if in[0] != mark || in[last] != mark {
			return 0, 0, fmt.Errorf("round trip %d brought another message back", i)
		}
		if i >= 0 {
			took[i] = t
		}
	}
	slices.Sort(took)
	return took[count/2], took[count*99/100], nil
}

// say sends msg with other bytes at its ends.
func say(e End, msg []byte, first, last byte) error {
	if err := e.Settle(); err != nil {
		return err
	}
	msg[0] = first
	msg[len(msg)-1] = last
	if err := e.Send(msg); err != nil {
		return err
	}
	return e.Flush()
}

func echo(e End, size, count int) error {
	out, in := make([]byte, size), make([]byte, size)
	for range count {
		if err := e.Receive(in); err != nil {
			return err
		}
		if err := say(e, out, in[0], in[size-1]); err != nil {
			return err
		}
	}
	return e.Settle()
}

// stream sends msg count times and returns the time until the other end has received all.
func stream(e End, msg []byte, count int) (time.Duration, error) {
	start := time.Now()
	for range count {
		if err := e.Send(msg); err != nil {
			return 0, err
		}
	}
	if err := e.Flush(); err != nil {
		return 0, err
	}
	err := e.Receive(make([]byte, 1))
	took := time.Since(start)
	return took, errors.Join(err, e.Settle())
}

func sink(e End, msg []byte, count int) error {
	for range count {
		if err := e.Receive(msg); err != nil {
			return err
		}
	}
	if err := e.Send([]byte{1}); err != nil {
		return err
	}
	return errors.Join(e.Flush(), e.Settle())
}
