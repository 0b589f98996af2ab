//go:build system

package paths

import (
	"context"
	"fmt"
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Packets of more than 1000 bytes, or 600, vanish on the path to a site before its daemons start: the site joins with
// small ones, the frontal's log says that it is slower, and links work.
func TestJoinsOnANarrowPath(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	for _, bytes := range []int{1000, 600} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			t.Parallel()
			w := newWorldAfter(t, "{rtt: 20ms}", "  - {name: a, preset: stateful, nodes: 1}\n  - {name: b, preset: stateful, nodes: 1}\n",
				func(l *lab.Lab) error {
					_, err := l.Narrow("a", bytes)
					return err
				})
			w.AwaitLog("frontal a", "packets of 576 bytes and is slower")
			w.Exchange(w.LinkPair("a/n1", "b/n1"))
		})
	}
}

// newWorldAfter returns a world of measured sites whose daemons are started after before has changed the lab.
func newWorldAfter(t *testing.T, wan, sites string, before func(*lab.Lab) error) *world {
	t.Helper()
	program := labtest.Program(t, "")
	patience := labtest.PatienceFor(t, labtest.Patience)
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("%s: not done after %v", t.Name(), patience))
	t.Cleanup(cancel)
	spec, err := lab.Parse(t.Name(), []byte("wan: "+wan+"\nsites:\n"+labtest.SitePublic+sites))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := before(l); err != nil {
		t.Fatal(err)
	}
	g, err := grid.Start(ctx, l, grid.Config{
		Broker: "public/broker", Proxies: []string{"public/p1"}, Binary: func(daemon string) []string { return []string{program, daemon} },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{&labtest.World{Grid: g, T: t, Ctx: ctx}}
	t.Cleanup(w.End)
	return w
}
