package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
)

// relayed returns how many bytes the proxy relayed since it was asked last. It
// accounts for a link when both ends have closed it, so a link that is expected
// is waited for.
func (w *world) relayed(ctx context.Context, expected bool) (n uint64, err error) {
	for {
		log := w.grid.Daemon("proxy proxy").Log()
		for line := range strings.Lines(log[w.read:]) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			w.read += len(line)
			var entry struct {
				Msg  string `json:"msg"`
				Sent uint64 `json:"sent"`
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				return n, fmt.Errorf("log of the proxy: %w in %q", err, line)
			}
			if entry.Msg == "link ended" { // one for each end, with what that end sent
				n += entry.Sent
			}
		}
		if n > 0 || !expected {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return n, nil
		case <-time.After(5 * time.Millisecond): // a log announces nothing
		}
	}
}

// settle returns the emulator's counters once nothing of the link is on its
// way any more, so that its last segments are not taken for the next pair's.
// Nothing announces that; what has been still for some round trips is over.
func (w *world) settle(ctx context.Context, a, b string) []wan.Counter {
	for {
		before := w.lab.Traffic()
		select {
		case <-time.After(3*w.rtt + 5*time.Millisecond):
		case <-ctx.Done():
			return w.lab.Traffic()
		}
		after := w.lab.Traffic()
		still := slices.EqualFunc(before, after, func(x, y wan.Counter) bool {
			ours := ofSite(x.From, a) || ofSite(x.From, b) || ofSite(x.To, a) || ofSite(x.To, b)
			control := x.From == brokerHost || x.To == brokerHost
			return x.Packets == y.Packets || !ours || control
		})
		if still {
			return after
		}
	}
}

// strangers counts what the emulator carried, from before to after, between the
// two sites and anybody who has no part in their link. Sites that met by hole
// punching keep their way open for the next time: what passes between either
// site and one that it is tunnelled to belongs to an earlier pair.
func strangers(before, after []wan.Counter, a, b string, tunnelled map[[2]string]bool) uint64 {
	old := map[[2]string]wan.Counter{}
	for _, t := range before {
		old[[2]string{t.From, t.To}] = t
	}
	friends := map[string]bool{a: true, b: true, a + "/proxy": true, b + "/proxy": true, brokerHost: true, proxyHost: true}
	var n uint64
	for _, t := range after {
		near, far := t.From, t.To
		if !ofSite(near, a) && !ofSite(near, b) {
			near, far = far, near
		}
		kept := tunnelled[[2]string{t.From, t.To}] || tunnelled[[2]string{t.To, t.From}]
		if (ofSite(near, a) || ofSite(near, b)) && !friends[far] && !kept {
			n += t.Packets - old[[2]string{t.From, t.To}].Packets
		}
	}
	return n
}

func ofSite(endpoint, site string) bool { return endpoint == site || endpoint == site+"/proxy" }
