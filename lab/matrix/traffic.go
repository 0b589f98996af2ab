package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// relayed returns how many bytes the proxy relayed for a job, according to its log. The proxy logs
// each end of a link when both have closed it, so if a link is expected relayed waits for its two
// ends.
func (w *world) relayed(ctx context.Context, job overlay.JobID, expected bool) (bytes uint64, err error) {
	for ends := 0; ; {
		log := w.grid.Daemon("proxy proxy").Log()
		n, err := tally(log[w.read:], job, &bytes, &ends)
		w.read += n
		if err != nil || ends >= 2 || !expected {
			return bytes, err
		}
		select {
		case <-ctx.Done():
			return bytes, fmt.Errorf("%w: waited for the proxy to account for the link", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond): // a log announces nothing
		}
	}
}

// tally sums up a job's records in a proxy's log: the bytes that its ends sent, and the number of
// ends that sent any. It returns the length of the log that it read, in whole lines. Bytes of
// another job that are logged so late are an error: they were not counted with their pair.
func tally(log string, job overlay.JobID, bytes *uint64, ends *int) (read int, err error) {
	for line := range strings.Lines(log) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		read += len(line)
		var entry struct {
			Msg            string        `json:"msg"`
			Job            overlay.JobID `json:"job"`
			Sent, Received uint64
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return read, fmt.Errorf("log of the proxy: %w in %q", err, line)
		}
		if entry.Msg != "link ended" || entry.Sent+entry.Received == 0 {
			continue
		}
		if entry.Job != job {
			return read, fmt.Errorf("the proxy tells too late of %d bytes of job %s", entry.Sent, entry.Job)
		}
		*bytes += entry.Sent
		*ends++
	}
	return read, nil
}

// delayedACK is how long the kernel delays an acknowledgement, with a margin: it counts 40 ms from
// the data on, in ticks of its clock.
const delayedACK = 50 * time.Millisecond

// path is an ordered pair of endpoints on the wide area network.
type path struct{ from, to string }

// settle returns the emulator's counters once nothing of the link is in transit any more, so that
// its last segments are not counted for the next pair. There is no event for that; a link that has
// been silent for longer than an end may wait, plus some round trips, is finished.
func (w *world) settle(ctx context.Context, a, b string) []wan.Counter {
	for {
		before := w.lab.Traffic()
		if sleep.For(ctx, delayedACK+3*w.RTT) != nil {
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

// strangers counts what the emulator carried, from before to after, between the two sites and
// endpoints that have no part in their link.
func strangers(before, after []wan.Counter, a, b string) map[path]uint64 {
	old := map[[2]string]wan.Counter{}
	for _, t := range before {
		old[[2]string{t.From, t.To}] = t
	}
	friends := map[string]bool{a: true, b: true, a + "/proxy": true, b + "/proxy": true, brokerHost: true, proxyHost: true}
	strange := map[path]uint64{}
	for _, t := range after {
		near, far := t.From, t.To
		if !ofSite(near, a) && !ofSite(near, b) {
			near, far = far, near
		}
		if (ofSite(near, a) || ofSite(near, b)) && !friends[far] {
			if n := t.Packets - old[[2]string{t.From, t.To}].Packets; n > 0 {
				strange[path{t.From, t.To}] = n
			}
		}
	}
	return strange
}

func ofSite(endpoint, site string) bool { return endpoint == site || endpoint == site+"/proxy" }

// forgive removes from strange what belongs to earlier pairs: packets, in either direction, between
// pairs connected shortly before, whose kernels may have repeated or acknowledged a last segment
// late, and between sites that have a tunnel. Hole punching leaves a tunnel open for the next time,
// even if another technique was faster.
func forgive(strange map[path]uint64, earlier map[path]bool) {
	maps.DeleteFunc(strange, func(p path, _ uint64) bool { return earlier[p] || earlier[path{p.to, p.from}] })
}

// tunnels returns the sites between which daemons logged that they keep a tunnel, from the one that
// logged it to its peer.
func (w *world) tunnels() map[path]bool {
	kept := map[path]bool{}
	for _, d := range w.grid.Daemons() {
		site, _, _ := strings.Cut(d.Host.Name(), "/")
		for peer := range peersOf(d.Log()) {
			kept[path{w.lab.Place(site), w.lab.Place(peer)}] = true
		}
	}
	return kept
}

// peersOf yields the sites to which a daemon keeps a tunnel, according to its log.
func peersOf(log string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(log) {
			var entry struct{ Msg, Peer string }
			if !strings.Contains(line, tunnelKept) || json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != tunnelKept {
				continue
			}
			if site, _, _ := strings.Cut(entry.Peer, "/"); !yield(site) {
				return
			}
		}
	}
}

// tunnelKept is the text that package coordinate logs for it.
const tunnelKept = "a tunnel stays for the next time"
