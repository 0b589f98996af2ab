package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// relayed returns how many bytes the proxy relayed for a job, by its log. It
// accounts for each end of a link when both have closed it, so where a link is
// expected its two ends are waited for.
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

// tally adds up what a proxy's log says of a job: the bytes that its ends sent,
// and how many of them carried any. It returns how much of the log it read, which
// is all whole lines. That bytes of another job come so late is an error: they
// were not counted where they belong.
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

// delayedACK is how long the kernel keeps an acknowledgement back, and then some:
// it counts 40 ms from the data on, in ticks of its clock.
const delayedACK = 50 * time.Millisecond

// settle returns the emulator's counters once nothing of the link is on its
// way any more, so that its last segments are not taken for the next pair's.
// Nothing announces that; what has been still for longer than an end may wait,
// and some round trips, is over.
func (w *world) settle(ctx context.Context, a, b string) []wan.Counter {
	for {
		before := w.lab.Traffic()
		select {
		case <-time.After(delayedACK + 3*w.RTT):
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
// two sites and anybody who has no part in their link, by "from -> to". Sites that met by hole
// punching keep their way open for the next time: what passes between either
// site and one that it is tunnelled to belongs to an earlier pair.
func strangers(before, after []wan.Counter, a, b string, tunnelled map[[2]string]bool) map[string]uint64 {
	old := map[[2]string]wan.Counter{}
	for _, t := range before {
		old[[2]string{t.From, t.To}] = t
	}
	friends := map[string]bool{a: true, b: true, a + "/proxy": true, b + "/proxy": true, brokerHost: true, proxyHost: true}
	strange := map[string]uint64{}
	for _, t := range after {
		near, far := t.From, t.To
		if !ofSite(near, a) && !ofSite(near, b) {
			near, far = far, near
		}
		kept := tunnelled[[2]string{t.From, t.To}] || tunnelled[[2]string{t.To, t.From}]
		if (ofSite(near, a) || ofSite(near, b)) && !friends[far] && !kept {
			if n := t.Packets - old[[2]string{t.From, t.To}].Packets; n > 0 {
				strange[t.From+" -> "+t.To] = n
			}
		}
	}
	return strange
}

func ofSite(endpoint, site string) bool { return endpoint == site || endpoint == site+"/proxy" }
