//go:build system

package paths

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// resentSYNs returns how many SYNs a host has sent again (tcp(7), TcpExt TCPSynRetrans).
func (w *world) resentSYNs(host string) (n int) {
	w.T.Helper()
	var text []byte
	if err := w.Lab.Host(host).Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	}); err != nil {
		w.T.Fatal(err)
	}
	var names []string
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "TCPSynRetrans" {
				n, _ = strconv.Atoi(fields[i])
			}
		}
	}
	return n
}

// expectResent checks how many SYNs a/n1 has sent again for as many links.
func (w *world) expectResent(links, most int) {
	w.T.Helper()
	if n := w.resentSYNs("a/n1"); n > most {
		w.T.Errorf("a node sent %d SYNs again for %d links; at most %d", n, links, most)
	}
}

// linkMany links as many processes of a/n1 with one each of b/n1, all at once, and logs how long the
// slowest took.
func (w *world) linkMany(links int) []*labtest.Pair {
	w.T.Helper()
	pairs := make([]*labtest.Pair, links)
	slowest := time.Duration(0)
	for i := range pairs {
		pairs[i] = w.JoinPair("a/n1", "b/n1")
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for _, j := range pairs {
		all.Go(func() {
			w.Connect(j)
			w.Exchange(j)
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, time.Since(begin))
		})
	}
	all.Wait()
	w.T.Logf("%d links within %v", links, slowest)
	return pairs
}

// A NAT has room for 64 sessions. Sixteen links need no more, and beyond what it has room for relays share connections: all
// links are there, few SYNs are lost, and plan and doctor say why.
func TestNATOfFewSessions(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newMeasured(t, "nat-64-sessions", 1)
	pairs := w.linkMany(16)
	w.expectResent(16, 32)
	pairs = append(pairs, w.linkMany(112)...)
	w.expectResent(128, 200)
	w.AwaitLog("frontal a", "the NAT before the site lets no new connections through")
	last := w.LinkPair("a/n1", "b/n1")
	if p := last.Near.Path; p.Technique != overlay.Relay || !strings.Contains(p.Reason, "that relays share") {
		t.Errorf("%v: %s", p, p.Reason)
	}
	for _, j := range append(pairs, last) { // the doctor needs connections of its own
		j.End(t)
	}
	if r := w.Doctor("helper a/n1"); !strings.Contains(labtest.Printed(r), "no new connections through beyond about") {
		t.Errorf("doctor:\n%s", labtest.Printed(r))
	}
	s, done, err := w.Admin(w.Ctx, "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	plan, err := controlpb.NewAdminClient(s.Conn()).Decide(w.Ctx, &controlpb.DecideRequest{Asker: "a", Target: "b"})
	if err != nil || !strings.Contains(plan.String(), "the NAT before a lets no new connections through") {
		t.Errorf("%v, %v", plan, err)
	}
}

// A NAT has 64 ports to each destination: 256 links of two nodes go to more than one.
func TestNATOfFewPorts(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newMeasured(t, "nat-64-ports", 1)
	w.linkMany(16)
	w.expectResent(16, 32)
	w.linkMany(240)
	w.expectResent(256, 400)
}
