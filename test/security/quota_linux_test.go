//go:build system

package security

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Two users whose links demand more than a proxy's rate get equal shares, though one has twice as
// many links. A third one's reader is stopped: its sender is blocked, no other is, and everything
// arrives as soon as it reads.
func TestProxySharesItsRate(t *testing.T) {
	const (
		rate     = "40Mbit/s"
		measured = 16 << 20 // bytes of both together; 3 s
		held     = 16 << 20 // more than all the buffers on the path can hold
	)
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{Settings: map[string]map[string]any{
		"proxy": {"metrics_listen": "127.0.0.1:9443", "quota": map[string]any{"rate": rate}},
	}})
	// moved returns what the proxy has carried for projects, all at one moment; 0 before the first
	// link.
	moved := func(projects ...string) (n [2]float64) {
		series := w.Scrape("proxy p1", "9443")
		for i, project := range projects {
			n[i], _ = strconv.ParseFloat(series[fmt.Sprintf(`isthmus_proxy_project_bytes_total{project=%q}`, project)], 64)
		}
		return n
	}
	// of creates a job for a user, and the credentials of its processes.
	of := func(user, project string) (jobkey.Key, []byte) {
		t.Helper()
		cert, err := w.Issue(control.Identity{Role: control.RoleUser, Name: user}, time.Now().Add(time.Hour), project)
		if err != nil {
			t.Fatal(err)
		}
		key, now := labtest.NewKey(t, project), time.Now()
		shown, err := grant.FromText(grantOf(t, grant.Claims{Job: key.ID(), Project: project, Issued: now, Expires: now.Add(30 * time.Minute)}, cert.Cert, cert.Key))
		if err != nil {
			t.Fatal(err)
		}
		return key, shown
	}

	// The stopped link is a bare connection through the proxy, since a link of processes would
	// buffer some megabytes for its reader.
	key, shown := of("carol", "ocean")
	var ends [2]*probe.Rank
	for i, node := range []string{"closed/n1", "shut/n1"} {
		var err error
		if ends[i], err = probe.JoinFor(w.Ctx, w.Grid, node, key, uint32(i), shown); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Leave()
	}
	near, err := ends[0].Connector().Dial(w.Ctx, ends[1].Identity.Process, overlay.AllWays)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Conn.Close()
	far, err := ends[1].Connector().Accept(w.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Conn.Close()
	near.Conn.(*net.TCPConn).SetWriteBuffer(256 << 10)
	far.Conn.(*net.TCPConn).SetReadBuffer(256 << 10)
	data := make([]byte, held)
	rand.NewChaCha8([32]byte{1}).Read(data)
	var sent atomic.Int64
	var busy sync.WaitGroup
	defer busy.Wait()
	defer near.Conn.Close()
	busy.Go(func() {
		for rest := data; len(rest) > 0; {
			n, err := near.Conn.Write(rest[:min(len(rest), 64<<10)])
			sent.Add(int64(n))
			if err != nil {
				t.Errorf("the held sender, after %d bytes: %v", sent.Load(), err)
				return
			}
			rest = rest[n:]
		}
		near.Conn.(interface{ CloseWrite() error }).CloseWrite()
	})
	w.Until("the proxy to carry for ocean", func() bool { return moved("ocean")[0] > 0 })

	var links []*labtest.Pair
	var flowing sync.WaitGroup
	for user, n := range map[string]uint32{"alice climate": 1, "bob fusion": 2} {
		name, project, _ := strings.Cut(user, " ")
		key, shown := of(name, project)
		for i := range n {
			j := &labtest.Pair{A: w.JoinFor(key, "closed/n1", 2*i, 2*n, shown), B: w.JoinFor(key, "shut/n1", 2*i+1, 2*n, shown)}
			links = append(links, j)
			if err := j.A.Mesh.Connect(w.Ctx, 2*i+1); err != nil {
				t.Fatal(err)
			}
			j.Near, j.Far = w.NextLink(j.A), w.NextLink(j.B)
			if j.Near.Path.Technique != overlay.Relay {
				t.Fatalf("linked by %v", j.Near.Path)
			}
			flowing.Go(func() { io.Copy(j.Near.Conn, endless{}) }) // until it is closed
			flowing.Go(func() { io.Copy(io.Discard, j.Far.Conn) })
		}
	}
	stop := sync.OnceFunc(func() {
		for _, j := range links {
			j.Near.Conn.Close()
			j.Far.Conn.Close()
		}
		flowing.Wait()
	})
	defer stop()
	var from, to [2]float64
	w.Until("both to have got going", func() bool { from = moved("climate", "fusion"); return from[0] > 1<<20 && from[1] > 1<<20 })
	w.Until("both to move more", func() bool { to = moved("climate", "fusion"); return to[0]+to[1] > from[0]+from[1]+measured })
	climate, fusion := to[0]-from[0], to[1]-from[1]
	if ratio := climate / fusion; ratio < 0.75 || ratio > 1.25 {
		t.Errorf("climate moved %.0f bytes and fusion %.0f: %.2f to 1", climate, fusion, ratio)
	}
	t.Logf("climate moved %.0f bytes and fusion %.0f meanwhile, ocean's sender got rid of %d", climate, fusion, sent.Load())
	if sent.Load() >= held {
		t.Errorf("ocean's sender was not held: it got rid of all %d bytes, and nobody read", held)
	}
	stop()

	got := sha256.New()
	far.Conn.SetReadDeadline(time.Now().Add(labtest.Patience))
	if n, err := io.Copy(got, far.Conn); err != nil || n != held {
		t.Errorf("the reader that had stood still got %d of %d bytes, %v", n, held, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(got.Sum(nil), want[:]) {
		t.Error("what it got is not what was sent")
	}
}

// endless is a source of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
