package sealed

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sizes are around everything that changes the processing: a record, a small buffer, a large one.
var sizes = []int{1, 5, 16, 1000, maxContent - 1, maxContent, maxContent + 1, 2 * maxContent, smallSize, gather * maxContent, gather*maxContent + 1, largeSize, 1 << 20}

func TestBothWays(t *testing.T) {
	a, b := sealedPair(t)
	if a.Peer().Process.Rank != 1 || b.Peer().Process.Rank != 0 {
		t.Errorf("peers %v and %v", a.Peer(), b.Peer())
	}
	for _, w := range sizes {
		for _, r := range sizes {
			if w*r > 1<<36 || max(w, r)/min(w, r) > 1<<17 {
				continue
			}
			n := min(max(w, r)+7, 200*min(w, r))
			if testload.Full() {
				n = min(3*max(w, r)+7, 2000*min(w, r))
			}
			exchange(t, a, b, random(uint64(w), n), []int{w}, []int{r})
			exchange(t, b, a, random(uint64(r), n), []int{r}, []int{w})
		}
	}
	exchange(t, a, b, random(1, 5<<20), []int{1, 100000, 17, 16384, 300000}, []int{3, 70000, 16384, 16385, 1})
}

// What is gathered from several buffers arrives as if it had been one, and is scattered likewise.
func TestVectors(t *testing.T) {
	a, b := sealedPair(t)
	data := random(7, 300_000)
	parts := [][]byte{data[:16], nil, data[16:17], data[17:200_000], {}, data[200_000:]}
	sent := make(chan error, 1)
	go func() {
		n, err := a.WriteVec(parts...)
		if n != len(data) {
			err = errors.Join(err, fmt.Errorf("%d bytes written, want %d", n, len(data)))
		}
		sent <- err
	}()
	head, body, got := make([]byte, 16), make([]byte, 150_000), []byte(nil)
	for len(got) < len(data) {
		n, err := b.ReadVec(head, nil, body)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, head[:min(n, len(head))]...)
		got = append(got, body[:max(n-len(head), 0)]...)
	}
	if err := <-sent; err != nil || !bytes.Equal(got, data) {
		t.Errorf("%v; equal: %v", err, bytes.Equal(got, data))
	}
}

// The server's early data comes with its flight, before the client has authenticated itself.
func TestEarly(t *testing.T) {
	a, b := dial(t)
	k := newKey(t, "demo")
	x, y := shake(t, a, b, member(t, k, 0), member(t, k, 1), name(k, 1), nil, []byte("hello"))
	if x.err != nil || y.err != nil {
		t.Fatal(x.err, y.err)
	}
	x.conn.SetDeadline(time.Now().Add(patience))
	if _, err := y.conn.Write([]byte(" there")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 11)
	if _, err := io.ReadFull(x.conn, got); err != nil || string(got) != "hello there" {
		t.Errorf("%q, %v", got, err)
	}
	exchange(t, x.conn, y.conn, random(1, 100_000), []int{50_000}, []int{50_000})
	exchange(t, y.conn, x.conn, random(2, 100_000), []int{50_000}, []int{50_000})
	if _, err := Server(t.Context(), b, member(t, k, 1), nil, make([]byte, maxEarly+1), Around{}); err == nil {
		t.Error("more than may be sent early was taken")
	}
}

// The early data is on the wire before the client has answered anything: one flight of each end is
// enough to read it.
func TestEarlyComesWithTheFlight(t *testing.T) {
	a, b := dial(t)
	k := newKey(t, "demo")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		c, err := Server(ctx, b, member(t, k, 1), nil, []byte("early"), Around{})
		done <- outcome{c, err}
	}()
	held := &holdSecondWrite{Conn: a}
	c, err := Client(ctx, held, member(t, k, 0), nil, Around{})
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 5)
	if _, err := io.ReadFull(c, p); err != nil || string(p) != "early" {
		t.Fatalf("%q, %v", p, err)
	}
	select {
	case o := <-done:
		t.Fatalf("the server ended without the client's proof: %v", o.err)
	default:
	}
	held.flush()
	if o := <-done; o.err != nil {
		t.Fatal(o.err)
	}
}

// holdSecondWrite holds everything after the first write until flush.
type holdSecondWrite struct {
	net.Conn
	writes int
	held   []byte
}

func (h *holdSecondWrite) Write(p []byte) (int, error) {
	if h.writes++; h.writes == 1 {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

func (h *holdSecondWrite) flush() { h.Conn.Write(h.held) }

func TestExporterBindsConnection(t *testing.T) {
	a, b := sealedPair(t)
	c, _ := sealedPair(t)
	export := func(c *Conn, label, context string) string {
		t.Helper()
		v, err := c.Exporter(label, []byte(context), 32)
		if err != nil || len(v) != 32 {
			t.Fatal(len(v), err)
		}
		return string(v)
	}
	if export(a, "EXPORTER-x", "link 1") != export(b, "EXPORTER-x", "link 1") {
		t.Error("the two ends disagree")
	}
	for other, v := range map[string]string{
		"label": export(a, "EXPORTER-y", "link 1"), "context": export(a, "EXPORTER-x", "link 2"), "connection": export(c, "EXPORTER-x", "link 1"),
	} {
		if v == export(a, "EXPORTER-x", "link 1") {
			t.Errorf("the same for another %s", other)
		}
	}
}

func TestStrangers(t *testing.T) {
	k, other := newKey(t, "demo"), newKey(t, "demo")
	const otherKey, otherRank, clocks = "the peer has another job key", "the peer expects another process of the job", "set the clocks of both nodes by NTP"
	at := func(ahead time.Duration, rank uint32) *jobkey.Certificates {
		c, err := k.CertificatesBy(func() time.Time { return time.Now().Add(ahead) }, rank, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const much = 3 * jobkey.ClockSlack // a certificate of that time has expired now
	for _, c := range []struct {
		name           string
		client, server Credentials
		wantS, wantC   *overlay.ProcessName
		clientSays     string // the client may learn it from the first Read
		serverSays     string
	}{
		{"client of another job", member(t, other, 0), member(t, k, 1), nil, nil, "belongs to job", otherKey},
		{"client of another job, who believes anyone", believer{member(t, other, 0)}, member(t, k, 1), nil, nil, otherKey, "belongs to job"},
		{"server of another job, who believes anyone", member(t, k, 0), believer{member(t, other, 1)}, nil, nil, "belongs to job", otherKey},
		{"wrong server", member(t, k, 0), member(t, k, 1), name(k, 2), nil, "rank 2 of job " + string(k.ID()) + " is expected", otherRank},
		{"wrong client", member(t, k, 0), member(t, k, 1), nil, name(k, 2), otherRank, "rank 2 of job " + string(k.ID()) + " is expected"},
		{"client's clock is ahead", believer{at(much, 0)}, at(0, 1), nil, nil, clocks, "the clocks of this node and its node differ"},
		{"client's clock is behind", believer{at(-much, 0)}, at(0, 1), nil, nil, clocks, "the clocks of this node and its node differ"},
		{"server's clock is ahead", at(0, 0), believer{at(much, 1)}, nil, nil, "the clocks of this node and its node differ", clocks},
	} {
		for _, early := range []string{"", "hello"} {
			t.Run(c.name+"/early="+early, func(t *testing.T) {
				a, b := dial(t)
				x, y := shake(t, a, b, c.client, c.server, c.wantS, c.wantC, []byte(early))
				if x.err == nil {
					x.conn.SetDeadline(time.Now().Add(patience))
					var got []byte
					if got, x.err = io.ReadAll(x.conn); string(got) != early {
						t.Errorf("client read %q, %v", got, x.err)
					}
				}
				if !errors.Is(x.err, overlay.ErrForbidden) || !strings.Contains(x.err.Error(), c.clientSays) {
					t.Errorf("client: %v, want %q", x.err, c.clientSays)
				}
				if y.err == nil || !strings.Contains(y.err.Error(), c.serverSays) {
					t.Errorf("server: %v, want %q", y.err, c.serverSays)
				}
				if y.conn != nil {
					t.Error("the server has a connection")
				}
				if _, err := b.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("the server's carrier is open still: %v", err)
				}
			})
		}
	}
}

// Clocks that differ by less than the slack, at either end and however old the certificate is by
// then, do not prevent a connection.
func TestClockSkew(t *testing.T) {
	k := newKey(t, "demo")
	for _, ahead := range []time.Duration{-jobkey.ClockSlack, -10 * time.Minute, 10 * time.Minute, jobkey.ClockSlack} {
		skewed, err := k.CertificatesBy(func() time.Time { return time.Now().Add(ahead - ahead/1000) }, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, swap := range []bool{false, true} {
			a, b := dial(t)
			client, server := skewed, member(t, k, 1)
			if swap {
				client, server = server, client
			}
			x, y := shake(t, a, b, client, server, nil, nil, []byte("hello"))
			if x.err != nil || y.err != nil {
				t.Errorf("the client's clock is %v ahead (of the other end's: %v): %v, %v", ahead, swap, x.err, y.err)
			}
		}
	}
}

// believer accepts every certificate as one of its own job.
type believer struct{ *jobkey.Certificates }

func (b believer) Verify([][]byte) (jobkey.Member, error) { return b.Self(), nil }

// holder presents a certificate that is not its own.
type holder struct {
	*jobkey.Certificates
	cert *tls.Certificate
}

func (a holder) Certificate() (*tls.Certificate, error) { return a.cert, nil }

func TestStolenCertificate(t *testing.T) {
	k := newKey(t, "demo")
	stolen, err := member(t, k, 0).Certificate()
	if err != nil {
		t.Fatal(err)
	}
	own, err := member(t, newKey(t, "demo"), 0).Certificate()
	if err != nil {
		t.Fatal(err)
	}
	thief := holder{member(t, k, 0), &tls.Certificate{Certificate: stolen.Certificate, PrivateKey: own.PrivateKey}}
	a, b := dial(t)
	if x, y := shake(t, a, b, thief, member(t, k, 1), nil, nil, nil); y.err == nil {
		t.Errorf("a client with another's certificate was let in: %v, %v", x.err, y.err)
	}
	a, b = dial(t)
	if x, y := shake(t, a, b, member(t, k, 1), thief, nil, nil, nil); x.err == nil || y.err == nil {
		t.Errorf("a server with another's certificate was believed: %v, %v", x.err, y.err)
	}
}

func TestPeersThatAreNot(t *testing.T) {
	k := newKey(t, "demo")
	roles := map[string]func(context.Context, net.Conn) (*Conn, error){
		"client": func(ctx context.Context, c net.Conn) (*Conn, error) {
			return Client(ctx, c, member(t, k, 0), nil, Around{})
		},
		"server": func(ctx context.Context, c net.Conn) (*Conn, error) {
			return Server(ctx, c, member(t, k, 0), nil, []byte("hello"), Around{})
		},
	}
	for role, run := range roles {
		t.Run("plain "+role, func(t *testing.T) {
			a, b := dial(t)
			if _, err := b.Write([]byte("ISTHMUS1 plain hello, no TLS")); err != nil {
				t.Fatal(err)
			}
			if _, err := run(t.Context(), a); !errors.Is(err, ErrPlain) {
				t.Error(err)
			}
		})
		t.Run("gone "+role, func(t *testing.T) {
			a, b := dial(t)
			b.(*net.TCPConn).CloseWrite()
			if _, err := run(t.Context(), a); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "closed the connection") {
				t.Error(err)
			}
		})
		t.Run("silent "+role, func(t *testing.T) {
			a, _ := dial(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := run(ctx, a); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "in time") {
				t.Error(err)
			}
			if _, err := a.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the carrier is open still: %v", err)
			}
		})
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		a, b := dial(t)
		config := plainTLS(t, member(t, k, 0))
		config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		go tls.Client(a, config).Handshake()
		if _, err := roles["server"](t.Context(), b); err == nil {
			t.Error("TLS 1.2 was taken")
		}
	})
	t.Run("no protocol", func(t *testing.T) {
		a, b := dial(t)
		config := plainTLS(t, member(t, k, 0))
		config.NextProtos = nil
		go tls.Client(a, config).Handshake()
		if _, err := roles["server"](t.Context(), b); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), alpn) {
			t.Error(err)
		}
	})
}

// crypto/tls communicates with this package in both roles, through changes of keys that it is asked
// to follow, and to a regular end.
func TestStandardPeer(t *testing.T) {
	k := newKey(t, "demo")
	for _, role := range []string{"client", "server"} {
		t.Run(role, func(t *testing.T) {
			a, b := dial(t)
			var std *tls.Conn
			done := make(chan outcome, 1)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if role == "client" { // crypto/tls is the client
				std = tls.Client(a, plainTLS(t, member(t, k, 0)))
				go func() {
					c, err := Server(ctx, b, member(t, k, 1), name(k, 0), []byte("early"), Around{})
					done <- outcome{c, err}
				}()
			} else {
				std = tls.Server(b, plainTLS(t, member(t, k, 0)))
				go func() {
					c, err := Client(ctx, a, member(t, k, 1), name(k, 0), Around{})
					done <- outcome{c, err}
				}()
			}
			if err := std.HandshakeContext(ctx); err != nil {
				t.Fatal(err)
			}
			o := <-done
			if o.err != nil {
				t.Fatal(o.err)
			}
			ours := o.conn
			ours.SetDeadline(time.Now().Add(patience))
			std.SetDeadline(time.Now().Add(patience))
			if role == "client" {
				p := make([]byte, 5)
				if _, err := io.ReadFull(std, p); err != nil || string(p) != "early" {
					t.Fatalf("%q, %v", p, err)
				}
			}
			ours.w.renew = 100
			data := random(3, 3<<20)
			exchange(t, ours, std, data, []int{1, 40000}, []int{30000})
			if ours.w.half.seq >= 100 {
				t.Error("the keys were not renewed")
			}
			exchange(t, std, ours, data, []int{1, 40000}, []int{30000})

			// Ask crypto/tls to change its own keys, too, which it then requests from us.
			request := keyUpdate
			request[len(request)-1] = 1
			if _, err := ours.conn.Write(ours.w.half.appendRecord(nil, typeHandshake, &cursor{bufs: [][]byte{request[:]}}, len(request))); err != nil {
				t.Fatal(err)
			}
			if err := ours.w.half.update(); err != nil {
				t.Fatal(err)
			}
			before := ours.r.half.secret
			exchange(t, ours, std, data[:100], []int{100}, []int{100})
			exchange(t, std, ours, data[:100_000], []int{50_000}, []int{50_000})
			if bytes.Equal(before, ours.r.half.secret) {
				t.Error("crypto/tls did not change its keys, or we did not follow")
			}
			if err := ours.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := std.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("%d, %v at our goodbye", n, err)
			}
			std.CloseWrite()
			if n, err := ours.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("%d, %v at its goodbye", n, err)
			}
			state := std.ConnectionState()
			theirs, err := state.ExportKeyingMaterial("EXPORTER-x", nil, 32)
			if err != nil {
				t.Fatal(err)
			}
			if mine, err := ours.Exporter("EXPORTER-x", nil, 32); err != nil || !bytes.Equal(mine, theirs) {
				t.Errorf("%x, %v; want %x", mine, err, theirs)
			}
		})
	}
}

// When the peer asks for a change of keys, this end changes them before the next data.
func TestAskedToRenew(t *testing.T) {
	a, b := sealedPair(t)
	request := keyUpdate
	request[len(request)-1] = 1
	if _, err := a.conn.Write(a.w.half.appendRecord(nil, typeHandshake, &cursor{bufs: [][]byte{request[:]}}, len(request))); err != nil {
		t.Fatal(err)
	}
	if err := a.w.half.update(); err != nil {
		t.Fatal(err)
	}
	before := b.w.half.secret
	exchange(t, a, b, random(1, 100), []int{100}, []int{100})
	exchange(t, b, a, random(2, 100), []int{100}, []int{100})
	if bytes.Equal(before, b.w.half.secret) {
		t.Error("the keys stayed")
	}
	exchange(t, a, b, random(3, 100_000), []int{1000}, []int{100})
}

func TestEnds(t *testing.T) {
	t.Run("half close", func(t *testing.T) {
		a, b := sealedPair(t)
		if _, err := a.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "last" {
			t.Fatalf("%q, %v", got, err)
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a second time: %d, %v", n, err)
		}
		if _, err := a.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after CloseWrite: %v", err)
		}
		exchange(t, b, a, random(1, 100_000), []int{30_000}, []int{30_000})
	})
	t.Run("close", func(t *testing.T) {
		a, b := sealedPair(t)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		a, b := sealedPair(t)
		if _, err := a.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		a.NetConn().Close()
		if got, err := io.ReadAll(b); !errors.Is(err, ErrTruncated) || !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != "last" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("truncated within a record", func(t *testing.T) {
		a, b := sealedPair(t)
		record := a.w.half.appendRecord(nil, typeApplication, &cursor{bufs: [][]byte{make([]byte, 100)}}, 100)
		if _, err := a.conn.Write(record[:len(record)-1]); err != nil {
			t.Fatal(err)
		}
		a.NetConn().Close()
		if got, err := io.ReadAll(b); !errors.Is(err, ErrTruncated) || len(got) != 0 {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("close while the peer does not read", func(t *testing.T) {
		a, _ := sealedPair(t)
		wrote := make(chan error, 1)
		go func() {
			for {
				if _, err := a.Write(make([]byte, 1<<20)); err != nil {
					wrote <- err
					return
				}
			}
		}()
		a.Close() // during a Write, or between two
		if err := <-wrote; err == nil {
			t.Error("no error")
		}
	})
	t.Run("close during a read", func(t *testing.T) {
		a, _ := sealedPair(t)
		read := make(chan error, 1)
		go func() { _, err := a.Read(make([]byte, 1)); read <- err }()
		a.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// A read deadline that passes, even in the middle of a record, loses nothing.
func TestReadDeadline(t *testing.T) {
	a, b := sealedPair(t)
	past := func() {
		t.Helper()
		b.SetReadDeadline(time.Unix(1, 0))
		if n, err := b.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		b.SetReadDeadline(time.Now().Add(patience))
	}
	past()
	exchange(t, a, b, random(1, 1000), []int{1000}, []int{1000})

	record := a.w.half.appendRecord(nil, typeApplication, &cursor{bufs: [][]byte{random(2, 100)}}, 100)
	if _, err := a.conn.Write(record[:50]); err != nil {
		t.Fatal(err)
	}
	b.r.mu.Lock()
	err := b.r.fill() // waits for the half that arrived
	b.r.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	past()
	if _, err := a.conn.Write(record[50:]); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, random(2, 100)) {
		t.Errorf("%v", err)
	}
}

func TestWriteDeadline(t *testing.T) {
	a, _ := sealedPair(t)
	a.SetWriteDeadline(time.Unix(1, 0))
	if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	a.SetWriteDeadline(time.Time{})
	if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("written behind a gap: %v", err)
	}
}
