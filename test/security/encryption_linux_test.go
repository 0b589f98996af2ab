//go:build system

package security

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A recorder keeps all packets that a host of the lab sends and receives.
type recorder struct{ fd int }

// recordBuffer holds everything that a test transfers.
const recordBuffer = 32 << 20

func (w *world) record(host string) recorder {
	w.T.Helper()
	r := recorder{}
	err := w.Lab.Host(host).Do(func() (err error) {
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8) // in network order
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { unix.Close(r.fd) })
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recordBuffer); err != nil {
		w.T.Fatal(err)
	}
	return r
}

// recorded returns the recorded packets: how many bytes they have, and whether text is in one of
// them.
func (r recorder) recorded(t *testing.T, text []byte) (size int, seen bool) {
	t.Helper()
	buf := make([]byte, 128<<10)
	for {
		n, _, err := unix.Recvfrom(r.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return size, seen
		}
		if err != nil {
			t.Fatal(err)
		}
		size += n
		seen = seen || bytes.Contains(buf[:n], text)
	}
}

// What a relay, a gateway or a switch on the path records of a link between two sites contains no
// plaintext, unless both sites trust the network between them; inside a site it is plaintext,
// unless the site requires encryption.
func TestWhoCanReadAlong(t *testing.T) {
	t.Parallel() // most of it is waiting
	type pair struct {
		from, to string
		by       string   // the path, so that the recorders are on it
		at       []string // hosts that record
		sealed   bool
	}
	for _, tc := range []struct {
		name     string
		settings map[string]map[string]any
		pairs    []pair
	}{
		{"by default", nil, []pair{
			{"closed/n1", "shut/n1", "relay", []string{"public/p1"}, true},
			{"hidden/n1", "closed/n1", "relay, via asker's gateway", []string{"public/p1", "hidden/gw"}, true},
			{"closed/n1", "closed/n2", "direct", []string{"closed/n2"}, false},
		}},
		{"as the sites wish", map[string]map[string]any{
			"frontal closed": {"encryption": map[string]any{"plain_with": []string{"hidden", "shut"}, "same_site": true}},
			"frontal hidden": {"encryption": map[string]any{"plain_with": []string{"closed"}}},
		}, []pair{
			{"closed/n1", "shut/n1", "relay", []string{"public/p1"}, true}, // shut does not say so
			{"shut/n1", "closed/n1", "relay", []string{"public/p1"}, true},
			{"hidden/n1", "closed/n1", "relay, via asker's gateway", []string{"public/p1", "hidden/gw"}, false},
			{"closed/n1", "closed/n2", "direct", []string{"closed/n2"}, true},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{Settings: tc.settings})
			for _, p := range tc.pairs {
				j := w.JoinPair(p.from, p.to)
				w.Connect(j)
				if got := labtest.PathOf(j.Near); got != p.by {
					t.Fatalf("%s to %s: linked by %s", p.from, p.to, got)
				}
				for _, l := range []*link.Link{j.Near, j.Far} {
					if (l.Path.Cipher != "") != p.sealed {
						t.Errorf("%s to %s: rank %d says cipher %q", p.from, p.to, l.Peer.Rank, l.Path.Cipher)
					}
				}
				var recorders []recorder
				for _, host := range p.at {
					recorders = append(recorders, w.record(host))
				}
				secret := []byte("what the relay is not to know. ")
				w.say(j, bytes.Repeat(secret, 8000))
				for i, r := range recorders {
					size, seen := r.recorded(t, secret)
					if size < 2*8000*len(secret) {
						t.Errorf("%s to %s: %s recorded %d bytes; it is not on the way", p.from, p.to, p.at[i], size)
					}
					if seen == p.sealed {
						t.Errorf("%s to %s, encrypted: %v: %s could read what was said: %v", p.from, p.to, p.sealed, p.at[i], seen)
					}
				}
				j.End(t)
			}
			w.AwaitLog("helper closed/n1", `"encryption"`, `"peer_site":"shut"`, `"required":`)
		})
	}
}

// say sends text both ways over a pair's link.
func (w *world) say(j *labtest.Pair, text []byte) {
	w.T.Helper()
	for _, d := range [][2]*link.Link{{j.Near, j.Far}, {j.Far, j.Near}} {
		sent := make(chan error, 1)
		go func() { // ends with the Write, at the latest when the test closes the link
			_, err := d[0].Conn.Write(text)
			sent <- err
		}()
		d[1].Conn.SetReadDeadline(time.Now().Add(labtest.Patience))
		got := make([]byte, len(text))
		if _, err := io.ReadFull(d[1].Conn, got); err != nil || !bytes.Equal(got, text) {
			w.T.Fatalf("%v: %v", d[1].Path, err)
		}
		if err := <-sent; err != nil {
			w.T.Fatal(err)
		}
	}
}
