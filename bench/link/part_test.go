package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// ends opens both ends of an implementation on this machine's loopback.
func ends(t *testing.T, c Transport) (listener, dialler End) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	from, err := net.DialTimeout("tcp4", ln.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	to, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []net.Conn{from, to} {
		raw.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { raw.Close() })
	}
	opened := make(chan error, 1)
	go func() { // ends by the context
		var err error
		listener, err = c.Open(ctx, to, false)
		opened <- err
	}()
	dialler, err = c.Open(ctx, from.(*net.TCPConn), true)
	if err := errors.Join(err, <-opened); err != nil {
		t.Fatal(err)
	}
	return listener, dialler
}

const orders = "trips 1 20\ntrips 70000 3\nstream 16 1000\nstream 300000 5\n"

// Every implementation carries out every order.
func TestTransportsObey(t *testing.T) {
	for _, c := range Transports {
		t.Run(c.Name(), func(t *testing.T) {
			listener, dialler := ends(t, c)
			served := make(chan error, 1)
			go func() { // ends with its orders, or by the deadline
				var out bytes.Buffer
				err := obey(listener, false, strings.NewReader(orders), &out)
				if err == nil && out.String() != strings.Repeat("ok 0 0\n", 4) {
					err = errors.New("said " + out.String())
				}
				served <- errors.Join(err, listener.Close())
			}()
			var out bytes.Buffer
			if err := obey(dialler, true, strings.NewReader(orders), &out); err != nil {
				t.Error(err)
			}
			if n := strings.Count(out.String(), "ok "); n != 4 || strings.Contains(out.String(), "ok 0") {
				t.Errorf("said %q", out.String())
			}
			if err := dialler.Close(); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// liar is an End that brings back nothing that was sent.
type liar struct{}

func (liar) Send([]byte) error        { return nil }
func (liar) Flush() error             { return nil }
func (liar) Settle() error            { return nil }
func (liar) Receive(msg []byte) error { msg[len(msg)-1] ^= 1; return nil }
func (liar) Close() error             { return nil }

func TestWrongEchoIsNoticed(t *testing.T) {
	err := obey(liar{}, true, strings.NewReader("trips 8 10\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another message") {
		t.Error(err)
	}
}

func TestBadOrders(t *testing.T) {
	for _, order := range []string{"dance 1 1", "trips 0 1", "trips 1 0", "trips 99999999999 1", "trips", "trips a b"} {
		if err := obey(liar{}, true, strings.NewReader(order+"\n"), io.Discard); err == nil {
			t.Errorf("%q was obeyed", order)
		}
	}
	for _, role := range []string{"", "net", "nobody cubic listen 127.0.0.1", "net cubic listen nowhere"} {
		if err := Part(t.Context(), role, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("role %q was played", role)
		}
	}
}
