package sealed

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

// patience bounds what should happen soon, also under -race on a busy machine.
const patience = time.Minute

func newKey(t testing.TB, name string) jobkey.Key {
	t.Helper()
	k, err := jobkey.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func member(t testing.TB, k jobkey.Key, rank uint32) *jobkey.Certificates {
	t.Helper()
	c, err := k.Certificates(rank, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func name(k jobkey.Key, rank uint32) *overlay.ProcessName {
	return &overlay.ProcessName{Job: k.ID(), Rank: rank}
}

// dial returns both ends of a TCP connection over loopback.
func dial(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	unpaced(client)
	unpaced(server)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

type outcome struct {
	conn *Conn
	err  error
}

// shake runs both roles over two ends and returns the result of each.
func shake(t testing.TB, a, b net.Conn, ca, cb Credentials, wantB, wantA *overlay.ProcessName, early []byte) (client, server outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		c, err := Server(ctx, b, cb, wantA, early, Around{})
		done <- outcome{c, err}
	}()
	client.conn, client.err = Client(ctx, a, ca, wantB, Around{})
	return client, <-done
}

// sealedPair returns two processes of one job, ranks 0 and 1, connected.
func sealedPair(t testing.TB) (client, server *Conn) {
	t.Helper()
	a, b := dial(t)
	return sealedOver(t, a, b)
}

func sealedOver(t testing.TB, a, b net.Conn) (client, server *Conn) {
	t.Helper()
	k := newKey(t, "demo")
	x, y := shake(t, a, b, member(t, k, 0), member(t, k, 1), name(k, 1), name(k, 0), nil)
	if x.err != nil || y.err != nil {
		t.Fatalf("client: %v; server: %v", x.err, y.err)
	}
	for _, c := range []*Conn{x.conn, y.conn} {
		c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { c.Close() })
	}
	return x.conn, y.conn
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// exchange sends data one way in writes of the given sizes, in turn, while the other end reads in
// pieces of other sizes, and compares.
func exchange(t *testing.T, from, to io.ReadWriter, data []byte, writes, reads []int) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		for i, rest := 0, data; len(rest) > 0; i++ {
			n := min(writes[i%len(writes)], len(rest))
			if k, err := from.Write(rest[:n]); err != nil || k != n {
				failed <- errors.Join(err, io.ErrShortWrite)
				return
			}
			rest = rest[n:]
		}
		failed <- nil
	}()
	got := make([]byte, 0, len(data))
	for i := 0; len(got) < len(data); i++ {
		p := make([]byte, reads[i%len(reads)])
		n, err := to.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", len(got), len(data), err)
		}
		if n == 0 && len(p) > 0 {
			t.Fatal("no byte and no error")
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Fatal("what arrived differs from what was sent")
	}
}

// plainTLS is the configuration of a peer that uses crypto/tls.
func plainTLS(t testing.TB, creds Credentials) *tls.Config {
	t.Helper()
	own, err := creds.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, ClientAuth: tls.RequireAnyClientCert,
		NextProtos: []string{alpn}, InsecureSkipVerify: true, SessionTicketsDisabled: true,
	}
}
