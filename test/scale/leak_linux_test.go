//go:build system

package scale

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// couple is two ranks of one job that link again and again.
type couple struct{ from, to *probe.Rank }

func (w *world) couple(from, to string) couple {
	w.T.Helper()
	key := labtest.NewKey(w.T, "again")
	var c couple
	for i, end := range []struct {
		node string
		rank **probe.Rank
	}{{from, &c.from}, {to, &c.to}} {
		r, err := probe.Join(w.Ctx, w.Grid, end.node, key, uint32(i))
		if err != nil {
			w.T.Fatal(err)
		}
		w.T.Cleanup(r.Leave)
		*end.rank = r
	}
	return c
}

// link makes a link, sends a little both ways and closes it.
func (w *world) link(c couple) error {
	near, far, _, err := probe.Pair(w.Ctx, c.from, c.to)
	if err != nil {
		return err
	}
	defer near.Conn.Close()
	defer far.Conn.Close()
	return probe.Exchange(w.Ctx, near, far, 1000)
}

// A thousand links, opened and closed by every technique between sites, leave no goroutine and no
// descriptor behind: neither in the processes that had them nor in any daemon, whose memory does
// not grow either.
func TestThousandLinksLeakNothing(t *testing.T) {
	const links, warm, atOnce = 1000, 200, 3
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{})
	var couples []couple
	for _, way := range labtest.Ways {
		if way.Path != "port-range" { // dials as direct does
			for range atOnce {
				couples = append(couples, w.couple(way.From, way.To))
			}
		}
	}
	open := func(n int) {
		t.Helper()
		var all sync.WaitGroup
		for i, c := range couples {
			all.Go(func() {
				for k := i; k < n; k += len(couples) {
					if err := w.link(c); err != nil {
						t.Errorf("link %d: %v", k, err)
						return
					}
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	open(warm)
	before := w.still()
	open(links)
	w.Until("goroutines and descriptors to be given back", func() bool {
		return w.usage().beyond(before) == ""
	}, func() string { return w.usage().beyond(before) })
	for name, was := range before.memory {
		if is := w.usage().memory[name]; is > was+memoryAllowance {
			t.Errorf("%s: %d KiB in memory after %d links, %d KiB before", name, is>>10, links, was>>10)
		}
	}
}

// memoryAllowance is how much a daemon's memory may vary because of its garbage collector, in
// bytes; a thousand links that leak one read buffer each far exceed it.
const memoryAllowance = 16 << 20

// usage is the resource use of this process and the daemons.
type usage struct {
	goroutines  int
	descriptors map[string]int
	memory      map[string]int // resident bytes
}

func (w *world) usage() usage {
	w.T.Helper()
	u := usage{runtime.NumGoroutine(), map[string]int{}, map[string]int{}}
	own, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		w.T.Fatal(err)
	}
	u.descriptors["this process"] = len(own)
	for _, d := range w.Daemons() {
		if u.descriptors[d.Name], err = d.Descriptors(); err != nil {
			w.T.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.PID()))
		if err != nil {
			w.T.Fatal(err)
		}
		var size, resident int
		if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
			w.T.Fatal(err)
		}
		u.memory[d.Name] = resident * os.Getpagesize()
	}
	return u
}

// still returns the minimum usage: closing connections have been released when it has not changed
// for a while.
func (w *world) still() usage {
	w.T.Helper()
	least, same := w.usage(), 0
	w.Until("goroutines and descriptors to be still", func() bool {
		now := w.usage()
		if now.beyond(least) == "" && least.beyond(now) == "" {
			same++
		} else {
			least, same = now, 0
		}
		return same == 20
	})
	return least
}

// beyond describes what u has more of than v.
func (u usage) beyond(v usage) string {
	var more []string
	if u.goroutines > v.goroutines {
		more = append(more, fmt.Sprintf("%d goroutines, were %d", u.goroutines, v.goroutines))
	}
	for name, n := range u.descriptors {
		if was := v.descriptors[name]; n > was {
			more = append(more, fmt.Sprintf("%s: %d descriptors, were %d", name, n, was))
		}
	}
	return strings.Join(more, "; ")
}
