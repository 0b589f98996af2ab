package link

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// setNarrow makes large packets vanish on all roads, or pass again.
func (r *roads) setNarrow(narrow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hole = narrow
}

// TestLargePacketsVanishFromTheStart: where connections carry nothing after the first full-sized
// packet, the handshake detects it and not the stream, and the link is established with small
// packets.
func TestLargePacketsVanishFromTheStart(t *testing.T) {
	plainAndSealed(t, func(t *testing.T, r *roads) {
		r.setNarrow(true)
		a, b := couple(t, r, 0)
		if !a.Path.Small {
			t.Errorf("the link is on %v", a.Path)
		}
		pump(t, a, b, 4<<20)
	})
}

// TestLargePacketsVanishUnderWay: the stream continues in small packets, whether the link has a
// relay in addition or only relays, and in large ones when they pass again.
func TestLargePacketsVanishUnderWay(t *testing.T) {
	for name, technique := range map[string]overlay.Technique{"direct": overlay.Direct, "relay": overlay.Relay} {
		t.Run(name, func(t *testing.T) {
			r := newRoads(t)
			if technique == overlay.Relay {
				r.block(overlay.Direct, overlay.ErrRefused)
			}
			a, b := couple(t, r, 0)
			pump(t, a, b, 1<<20)
			r.setNarrow(true)
			pump(t, a, b, 4<<20)
			dialler := a
			if !a.Dialled {
				dialler = b
			}
			if used := usedPaths(dialler); len(used) == 0 || !used[0].Small {
				t.Errorf("the link goes by %v", used)
			}
			r.setNarrow(false)
			for end := time.Now().Add(time.Minute); ; {
				if used := usedPaths(dialler); len(used) == 1 && !used[0].Small && used[0].Technique == technique {
					break
				} else if time.Now().After(end) {
					t.Fatalf("large packets pass again, and the link still goes by %v", used)
				}
				pump(t, a, b, 1<<10)
			}
		})
	}
}

// usedPaths returns the paths on which an end sends.
func usedPaths(l *Link) (paths []overlay.Path) {
	for _, c := range l.Carriers() {
		if c.Used {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// TestWaysBackAndUp tests waysBack and waysUp as tables.
func TestWaysBackAndUp(t *testing.T) {
	const small, full = overlay.SmallPackets, overlay.FullPackets
	for _, c := range []struct {
		what      string
		got, want []overlay.Ways
	}{
		{"a carrier that was reset", waysBack(false, false), []overlay.Ways{overlay.AllWays}},
		{"a silent one", waysBack(true, false), []overlay.Ways{overlay.AllWays, overlay.RelayOnly | small}},
		{"a silent relay", waysBack(true, true), []overlay.Ways{overlay.AllWays, overlay.AllWays | small}},
		{"from a relay", quality{class: overlay.Relay}.waysUp(), []overlay.Ways{overlay.DirectOnly}},
		{"from a relay in small packets", quality{class: overlay.Relay, small: true}.waysUp(), []overlay.Ways{overlay.DirectOnly, overlay.AllWays | full}},
		{"from a direct path in small packets", quality{class: overlay.Direct, small: true}.waysUp(), []overlay.Ways{overlay.AllWays | full}},
	} {
		if len(c.got) != len(c.want) {
			t.Fatalf("%s: %v, want %v", c.what, c.got, c.want)
		}
		for i := range c.got {
			if c.got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
			}
		}
	}
}
