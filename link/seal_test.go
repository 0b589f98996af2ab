package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link/internal/memnet"
	"github.com/isthmus-grid/isthmus/link/sealed"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// trial is a handshake of rank 1, which dials, with rank 2.
type trial struct {
	dialler, target           Identity
	sealDialler, sealTarget   bool
	admitDialler, admitTarget func(*wire.Hello) error
	announced                 overlay.SiteID // of the dialler, to the target
}

func newTrial(t *testing.T) trial {
	return trial{dialler: identity(t, 1), target: identity(t, 2), admitDialler: admitAll, admitTarget: admitAll, announced: "sitea"}
}

// over performs the handshake over the two ends of a connection.
func (m trial) over(ctx context.Context, a, b net.Conn) (dialler, target outcome) {
	at := func(site overlay.SiteID) overlay.NodeID { return overlay.NodeID{Site: site, Name: "n1"} }
	path := func(site overlay.SiteID) overlay.Path {
		return overlay.Path{Technique: overlay.Relay, Proxy: "p1", Peer: at(site)}
	}
	other := make(chan outcome, 1)
	go func() {
		l, err := Establish(ctx, overlay.Carrier{Conn: b, Path: path(m.announced), Here: at("siteb"), Seal: m.sealTarget}, m.target, nil, m.admitTarget)
		other <- outcome{l, err}
	}()
	peer := overlay.ProcessName{Job: m.dialler.Process.Job, Rank: 2}
	l, err := Establish(ctx, overlay.Carrier{Conn: a, Path: path("siteb"), Here: at("sitea"), Seal: m.sealDialler}, m.dialler, &peer, m.admitDialler)
	return outcome{l, err}, <-other
}

func (m trial) run(t *testing.T, a, b net.Conn) (dialler, target outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dialler, target = m.over(ctx, a, b)
	t.Cleanup(func() {
		for _, o := range []outcome{dialler, target} {
			if o.link != nil {
				o.link.Conn.Close()
			}
		}
	})
	return dialler, target
}

// tap records what passes a connection's end, and in which order.
type tap struct {
	net.Conn
	mu    sync.Mutex
	turn  []byte // 'w' and 'r' in turn
	said  bytes.Buffer
	first int // how much of it was written before anything was read
}

func (p *tap) note(what byte, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.turn); n == 0 || p.turn[n-1] != what {
		p.turn = append(p.turn, what)
	}
	p.said.Write(b)
	if len(p.turn) == 1 && what == 'w' {
		p.first = p.said.Len()
	}
}

func (p *tap) Write(b []byte) (int, error) {
	p.note('w', b)
	return p.Conn.Write(b)
}

func (p *tap) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 {
		p.note('r', b[:n])
	}
	return n, err
}

func (p *tap) turns() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.turn)
}

// opened reports whether TLS was begun before anything was read.
func (p *tap) opened() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.said.Bytes()[:p.first], []byte{0x16, 3, 1})
}

func (p *tap) saw(text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.said.Bytes(), text)
}

// A carrier is encrypted if either end wants it, and then a process on the way cannot read it;
// otherwise it can. Encryption costs no round trip if the dialler wants it: the dialler's first
// flight contains TLS's first message, and the target's answer, sent in one flight, is all that the
// dialler waits for.
func TestSealing(t *testing.T) {
	for _, tc := range []struct{ dialler, target bool }{{false, false}, {true, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("dialler=%v/target=%v", tc.dialler, tc.target), func(t *testing.T) {
			m := newTrial(t)
			m.sealDialler, m.sealTarget = tc.dialler, tc.target
			a, b := tcpPair(t)
			tapped, target := &tap{Conn: a}, &tap{Conn: b}
			d, g := m.run(t, tapped, target)
			if d.err != nil || g.err != nil {
				t.Fatal(d.err, g.err)
			}
			// hello, hello and TLS, TLS and proof, TLS and proof; what may follow is the link's
			if got := target.turns(); !strings.HasPrefix(got, "wrwr") {
				t.Errorf("the target took turns %s", got)
			}
			if got := tapped.opened(); got != tc.dialler {
				t.Errorf("the dialler began TLS with its hello: %v", got)
			}
			secret := bytes.Repeat([]byte("what nobody else may see. "), 20)
			for _, dir := range [][2]*Link{{d.link, g.link}, {g.link, d.link}} {
				got := make([]byte, len(secret))
				if _, err := dir[0].Conn.Write(secret); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(dir[1].Conn, got); err != nil || !bytes.Equal(got, secret) {
					t.Fatalf("%q, %v", got, err)
				}
			}
			want := tc.dialler || tc.target
			for _, l := range []*Link{d.link, g.link} {
				if (l.Path.Cipher != "") != want || want && !strings.HasPrefix(l.Path.Cipher, "TLS_") {
					t.Errorf("rank %d: cipher %q", l.Peer.Rank, l.Path.Cipher)
				}
			}
			if tapped.saw([]byte("nobody else")) == want {
				t.Errorf("encrypted: %v; seen on the way: %v", want, !want)
			}
		})
	}
}

// Each carrier of the same two processes has keys of its own.
func TestKeysAreFresh(t *testing.T) {
	seen := map[string]bool{}
	admit := func(*wire.Hello) (uint64, error) { return 0, nil }
	dialler, target := identity(t, 1), identity(t, 2)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		a, b := tcpPair(t)
		answered := make(chan error, 1)
		go func() {
			_, _, err := runHandshake(ctx, overlay.Carrier{Conn: b}, target, nil, terms{admit: admit})
			answered <- err
		}()
		c, _, err := runHandshake(ctx, overlay.Carrier{Conn: a, Seal: true}, dialler, &target.Process, terms{link: wire.ID{1}, again: len(seen) > 0, admit: admit})
		if err := errors.Join(err, <-answered); err != nil {
			t.Fatal(err)
		}
		secret, err := c.Conn.(*sealed.Conn).Exporter("test", nil, 32)
		if err != nil || seen[string(secret)] {
			t.Errorf("the same keys again, %v", err)
		}
		seen[string(secret)] = true
	}
}

// Refusals reach the other end in readable form, before, during and after TLS.
func TestSealedRefusals(t *testing.T) {
	foreign, err := jobkey.New("demo")
	if err != nil {
		t.Fatal(err)
	}
	ours := identity(t, 0).Process.Job
	key, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil || key.ID() != ours {
		t.Fatal(err)
	}
	known := func(k jobkey.Key, rank uint32, life overlay.Generation) func() (sealed.Credentials, error) {
		return func() (sealed.Credentials, error) { return k.Certificates(rank, life) }
	}
	duplicate := func(*wire.Hello) error { return fmt.Errorf("%w: have one", overlay.ErrDuplicate) }
	const refused = "the peer does not accept this process's certificate"
	for _, tc := range []struct {
		name      string
		change    func(*trial)
		class     error
		atDialler string // "" if it may have its link: it learns of the refusal when it reads
		atTarget  string
	}{
		{"target does not want it", func(m *trial) { m.admitTarget = duplicate }, overlay.ErrDuplicate, "it says: another link of the pair was kept: have one", "have one"},
		{"dialler does not want it", func(m *trial) { m.admitDialler = duplicate }, overlay.ErrDuplicate, "have one", "it says: another link of the pair was kept: have one"},
		{"target of another site", func(m *trial) { m.announced = "sitec" }, overlay.ErrForbidden, "it is at site sitea, but was announced as one of sitec", "it is at site sitea, but was announced as one of sitec"},
		{"target without the key", func(m *trial) { m.target.Credentials = known(foreign, 2, 7) }, overlay.ErrForbidden, "this process belongs to job " + string(ours), refused},
		{"dialler without the key", func(m *trial) { m.dialler.Credentials = known(foreign, 1, 7) }, overlay.ErrForbidden, "this process belongs to job " + string(foreign.ID()), refused},
		{"target is another rank", func(m *trial) { m.target.Credentials = known(key, 3, 7) }, overlay.ErrForbidden, "it is rank 3 of job " + string(ours) + ", life 7, but rank 2 of job", refused},
		{"dialler is another rank", func(m *trial) { m.dialler.Credentials = known(key, 3, 7) }, overlay.ErrForbidden, "", "it is rank 3 of job " + string(ours) + ", life 7, but rank 1 of job"},
		{"target of an old life", func(m *trial) { m.target.Credentials = known(key, 2, 6) }, overlay.ErrForbidden, "its certificate is that of life 6 of the rank, its hello says 7", "it says: not permitted: its certificate is that of life 6"},
		{"dialler of an old life", func(m *trial) { m.dialler.Credentials = known(key, 1, 6) }, overlay.ErrForbidden, "", "its certificate is that of life 6 of the rank, its hello says 7"},
		{"proof of another job", func(m *trial) { m.target.Key = foreign.Links() }, overlay.ErrForbidden, "its proof is wrong", "its proof is wrong"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newTrial(t)
			m.sealDialler = true
			tc.change(&m)
			a, b := tcpPair(t)
			d, g := m.run(t, a, b)
			if tc.atDialler == "" { // the refusal crosses its last message
				if d.err == nil {
					d.link.Conn.SetReadDeadline(time.Now().Add(30 * time.Second))
					_, d.err = d.link.Conn.Read(make([]byte, 1))
				}
				if d.err == nil || isTimeout(d.err) {
					t.Errorf("the dialler has a link: %v", d.err)
				}
			} else if !errors.Is(d.err, tc.class) || !strings.Contains(d.err.Error(), tc.atDialler) {
				t.Errorf("dialler: %v", d.err)
			}
			if !errors.Is(g.err, tc.class) || !strings.Contains(g.err.Error(), tc.atTarget) {
				t.Errorf("target: %v", g.err)
			}
		})
	}
}

// meddler is a process on the way that changes hellos.
type meddler struct {
	clear [2]bool // the flag in the hello of the dialler, of the target
	strip bool    // and the dialler's TLS
}

func (w meddler) between(t *testing.T) (a, b net.Conn) {
	t.Helper()
	a, left := memnet.Pair(memnet.Options{Delay: delay})
	right, b := memnet.Pair(memnet.Options{Delay: delay})
	var busy sync.WaitGroup
	for i, d := range [][2]*memnet.Conn{{left, right}, {right, left}} {
		busy.Go(func() {
			defer d[1].CloseWrite()
			h, err := receive[*wire.Hello](d[0], "hello")
			if err != nil {
				return
			}
			if w.clear[i] {
				h.Features &^= wire.FeatureSeal
			}
			d[1].Write(wire.Append(nil, h))
			if i == 0 && w.strip {
				record := make([]byte, 5)
				if _, err := io.ReadFull(d[0], record); err != nil {
					return
				}
				io.CopyN(io.Discard, d[0], int64(record[3])<<8|int64(record[4]))
			}
			io.Copy(d[1], d[0])
		})
	}
	t.Cleanup(func() {
		for _, c := range []net.Conn{a, b, left, right} {
			c.Close()
		}
		busy.Wait()
	})
	return a, b
}

// A process on the way that clears the flag, so that the ends use plain text, is detected: no end
// has a link.
func TestDowngrade(t *testing.T) {
	const both = "it continues in plain text although the carrier must be encrypted"
	for _, tc := range []struct {
		name            string
		dialler, target bool // wants encryption
		by              meddler
		waits           bool   // the ends wait for each other until their timeout
		want            string // what one of them says
	}{
		{"the dialler's", true, false, meddler{clear: [2]bool{true, false}}, false, "not an Isthmus frame"},
		{"the dialler's and its TLS", true, false, meddler{clear: [2]bool{true, false}, strip: true}, false, both},
		{"the dialler's, but the target wants it too", true, true, meddler{clear: [2]bool{true, false}}, false, "its proof is wrong"},
		{"both", true, true, meddler{clear: [2]bool{true, true}}, false, "its proof is wrong"},
		{"the target's", false, true, meddler{clear: [2]bool{false, true}}, true, "TLS handshake with rank 1"},
		{"the target's though it makes no difference", true, true, meddler{clear: [2]bool{false, true}}, false, "its proof is wrong"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTrial(t)
				m.sealDialler, m.sealTarget = tc.dialler, tc.target
				ctx, cancel := context.WithTimeout(t.Context(), handshakeTimeout)
				defer cancel()
				a, b := tc.by.between(t)
				d, g := m.over(ctx, a, b)
				if d.err == nil || g.err == nil {
					t.Fatalf("dialler: %v, target: %v", d.err, g.err)
				}
				if !strings.Contains(d.err.Error()+g.err.Error(), tc.want) {
					t.Errorf("dialler: %v\ntarget: %v\nwant %q", d.err, g.err, tc.want)
				}
				if !tc.waits && ctx.Err() != nil {
					t.Error("it took until the time was over")
				}
			})
		})
	}
	// The same with a meddler that changes nothing: so the change is what fails.
	synctest.Test(t, func(t *testing.T) {
		m := newTrial(t)
		m.sealDialler, m.sealTarget = true, true
		a, b := meddler{}.between(t)
		if d, g := m.run(t, a, b); d.err != nil || g.err != nil {
			t.Error(d.err, g.err)
		}
	})
}

// A mesh logs the choice for another site once, however many carriers there are, and again when it
// changes.
func TestChoiceIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := NewMesh(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	to := func(site overlay.SiteID, technique overlay.Technique, cipher string) overlay.Carrier {
		return overlay.Carrier{Path: overlay.Path{Technique: technique, Peer: overlay.NodeID{Site: site, Name: "n1"}, Cipher: cipher}, Here: overlay.NodeID{Site: "sitea", Name: "n1"}}
	}
	for range 3 {
		m.logChoice(to("siteb", overlay.Relay, "TLS_AES_128_GCM_SHA256"))
		m.logChoice(to("siteb", overlay.Direct, "TLS_AES_128_GCM_SHA256"))
		m.logChoice(to("sitea", overlay.Direct, ""))
		m.logChoice(to("sitea", 0, "")) // one node
	}
	m.logChoice(to("siteb", overlay.Relay, ""))
	want := []string{
		"site=sitea peer_site=siteb encrypted=true cipher=TLS_AES_128_GCM_SHA256",
		"site=sitea peer_site=sitea encrypted=false",
		"site=sitea peer_site=siteb encrypted=false",
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), log.String())
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) {
			t.Errorf("line %d: %s, want %s", i, line, want[i])
		}
	}
}

// A process on the way that refuses in the peer's name cannot end an encrypted link. It can end a
// plain one.
func TestForgedRefusals(t *testing.T) { plainAndSealed(t, forgedRefusals) }

func forgedRefusals(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<10)
	r.mu.Lock()
	r.forged = []wire.Code{wire.CodeStale, wire.CodeForbidden, wire.CodeUnknownProcess}
	r.mu.Unlock()
	r.cut()
	if r.seal {
		pump(t, a, b, 1<<20)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.forged) > 0 {
			t.Errorf("%d refusals were not met", len(r.forged))
		}
		return
	}
	if _, err := b.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) { // b dials first
		t.Errorf("the link that met a refusal: %v", err)
	}
}
