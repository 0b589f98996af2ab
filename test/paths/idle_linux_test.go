//go:build system

package paths

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// siteForgetful is a site whose firewall drops packets of connections whose beginning it has not
// seen; see forgets.
const siteForgetful = "  - {name: closed, preset: stateful-strict-new, nodes: 1}\n"

// forgets makes a gateway's firewall forget TCP connections that are idle for the given number of
// whole seconds.
func (w *world) forgets(gateway, seconds string) {
	w.T.Helper()
	err := w.Lab.Host(gateway).Do(func() error {
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", []byte(seconds), 0)
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

// idle leaves a link alone, and returns what both ends have sent on it meanwhile and what the
// network has carried between their sites.
func (w *world) idle(j *labtest.Pair, d time.Duration) (said uint64, packets, bytes uint64) {
	w.T.Helper()
	count := func() (said, packets, bytes uint64) {
		for _, c := range w.Lab.Traffic() {
			if (c.From == "closed" || c.From == "open") && (c.To == "closed" || c.To == "open") {
				packets, bytes = packets+c.Packets, bytes+c.Bytes
			}
		}
		return saidOn(j), packets, bytes
	}
	said0, packets0, bytes0 := count()
	select {
	case <-time.After(d): // which is what the test is about
	case <-w.Ctx.Done():
		w.T.Fatal(context.Cause(w.Ctx))
	}
	said, packets, bytes = count()
	return said - said0, packets - packets0, bytes - bytes0
}

// saidOn returns how many bytes both ends of a link have sent on the carriers they use.
func saidOn(j *labtest.Pair) (bytes uint64) {
	for _, c := range used(j) {
		bytes += c.Sent
	}
	return bytes
}

// quiet waits until nothing was sent on a link for a second: by then all data is acknowledged and
// all keepalives are answered.
func quiet(t *testing.T, j *labtest.Pair) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	said, since := saidOn(j), time.Now()
	for end := since.Add(20 * time.Second); time.Since(since) < time.Second; <-look.C {
		if now := saidOn(j); now != said {
			said, since = now, time.Now()
		}
		if time.Now().After(end) {
			t.Fatal("an idle link does not fall silent")
		}
	}
}

// used returns the carriers on which the ends of a link send. There may be one more,
// when both ends have dialled after a loss; nobody keeps that from being forgotten.
func used(j *labtest.Pair) [2]stream.State {
	var all [2]stream.State
	for i, l := range []*link.Link{j.Near, j.Far} {
		for _, c := range l.Carriers() {
			if c.Used {
				all[i] = c.State
				break
			}
		}
	}
	return all
}

// carriersOf returns what used does, without their state.
func carriersOf(j *labtest.Pair) [2]*stream.Carrier {
	u := used(j)
	return [2]*stream.Carrier{u[0].Carrier, u[1].Carrier}
}

// settledCarriers returns the carriers when each end has used the same one for some
// time: an end that lost one may find another while its peer dials, too.
func settledCarriers(t *testing.T, j *labtest.Pair) [2]*stream.Carrier {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	now, since := carriersOf(j), time.Now()
	for end := since.Add(20 * time.Second); time.Since(since) < 3*time.Second; <-look.C {
		if c := carriersOf(j); c != now || c[0] == nil || c[1] == nil {
			now, since = c, time.Now()
		}
		if time.Now().After(end) {
			t.Fatalf("not settled after 30 s: %v and %v", j.Near.Carriers(), j.Far.Carriers())
		}
	}
	return now
}

// A firewall that forgets idle connections costs a link nothing if the site knows the timeout,
// whichever end dialled, and one carrier if it does not.
func TestIdleLinks(t *testing.T) {
	const memory = 8 * time.Second // half of it is asked after, and what a busy machine is late fits into the rest
	for _, tc := range []struct {
		name     string
		from, to string
		path     string
		told     bool
	}{
		{"told", "closed/n1", "open/n1", "direct", true},
		{"told, and dialled", "open/n1", "closed/n1", "reversed", true},
		{"not told", "closed/n1", "open/n1", "direct", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, siteForgetful+labtest.SiteOpen, grid.Config{Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
				p = labtest.FixedProfile(site, p)
				if site == "closed" && tc.told {
					p.IdleTCP = uint32(memory / time.Second)
				}
				return p
			}})
			w.forgets("closed/gw", strconv.Itoa(int(memory/time.Second)))
			j := w.LinkPair(tc.from, tc.to)
			if got := labtest.PathOf(j.Near); got != tc.path {
				t.Fatalf("linked by %s", got)
			}
			before := carriersOf(j)
			if !tc.told {
				w.idle(j, memory*3/2)
				w.Exchange(j)
				if after := carriersOf(j); after[0] == before[0] || after[1] == before[1] {
					t.Fatal("the firewall has forgotten nothing: the test shows nothing")
				}
				before = settledCarriers(t, j)
			}
			quiet(t, j)
			said, packets, bytes := w.idle(j, 4*memory)
			w.Exchange(j)
			if after := carriersOf(j); after != before {
				t.Fatal("a carrier was lost while nothing passed")
			}
			// A question and its answer are 24 bytes each, and pass in three packets, for the
			// answer is acknowledged, or in four where it is late and the question is, too.
			// There is one of them in half the memory or more, and perhaps the last of the time
			// before. What was sent on a lost carrier may be sent again meanwhile, to no avail.
			const most = 9
			if said == 0 || said > most*2*24 || tc.told && packets > most*4 {
				t.Errorf("in %v both ends said %d bytes, in %d packets of %d bytes", 4*memory, said, packets, bytes)
			}
			t.Logf("in %v both ends said %d bytes, in %d packets of %d bytes", 4*memory, said, packets, bytes)
		})
	}
}
