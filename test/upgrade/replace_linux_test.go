//go:build system

package upgrade

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A proxy is replaced by a new process while links go through it and new ones are made
// continuously: no dial is refused, and no link breaks.
func TestProxyIsReplacedUnderLoad(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{})
	flows := []*labtest.Flow{w.StartFlow(w.LinkPair("closed/n1", "shut/n1")), w.StartFlow(w.LinkPair("shut/n1", "closed/n2"))}
	w.replace("proxy p1", "closed/n2", "shut/n1", flows)
}

// The same for a gateway, which carries all traffic of its nodes, and knows where they are.
func TestGatewayIsReplacedUnderLoad(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteHidden+labtest.SiteClosed, grid.Config{})
	flows := []*labtest.Flow{w.StartFlow(w.LinkPair("hidden/n1", "closed/n1")), w.StartFlow(w.LinkPair("closed/n2", "hidden/n1"))}
	w.replace("frontal hidden", "hidden/n1", "closed/n2", flows)
}

// replace makes a daemon hand over while links are made continuously between two nodes whose path
// goes through it, and flows continue.
func (w *world) replace(daemon, from, to string, flows []*labtest.Flow) {
	w.T.Helper()
	t, p := w.T, w.Daemon(daemon)
	old := p.PID()
	over := make(chan error, 1)
	go func() { over <- p.HandOver(w.Ctx) }()
	for replaced, more := false, 5; more > 0; {
		w.LinkPair(from, to).End(t)
		select {
		case err := <-over:
			if err != nil {
				t.Fatal(err)
			}
			replaced = true
		default:
		}
		if replaced {
			more--
		}
	}
	w.AwaitFlows("after the hand-over", flows)
	if !p.Running() || p.PID() != old {
		t.Error("the old process has ended while links go through it")
	}
	for line := range strings.Lines(p.Log()) {
		var e struct{ Msg, Cause string }
		json.Unmarshal([]byte(line), &e)
		if cutByDaemon(e.Msg, e.Cause) || slices.Contains([]string{"refused", "data connection refused", "carry refused"}, e.Msg) {
			t.Errorf("%s wrote %s", daemon, line)
		}
	}
}

// cutByDaemon reports whether a line of a daemon's log says that it ended a link.
// Ends of links that close at once may reset them. What is only being made when
// sessions end is given up and made again by the successor, of which nobody sees
// anything but a longer wait.
func cutByDaemon(msg, cause string) bool {
	return msg == "link ended" && cause != "both ends closed" &&
		!strings.Contains(cause, "connection reset by peer") && !strings.Contains(cause, "broken pipe")
}

// The links of a draining proxy leave it and continue through another, and the proxy ends.
func TestDrainedProxyIsLeft(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{Proxies: []string{"public/p1", "public/p2"}})
	j := w.LinkPair("closed/n1", "shut/n1")
	flows := []*labtest.Flow{w.StartFlow(j)}
	first := j.Near.Path.Proxy
	if err := w.Daemon("proxy " + first).Drain(w.Ctx); err != nil {
		t.Fatal(err)
	}
	w.AwaitFlows("after its proxy has drained", flows)
	again := w.LinkPair("closed/n2", "shut/n1")
	if got := again.Near.Path.Proxy; got == first || got == "" {
		t.Errorf("a new link goes through %q, and %s has drained", got, first)
	}
	again.End(t)
}
