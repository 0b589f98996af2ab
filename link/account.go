package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A mesh whose connector is an overlay.TrafficReporter reports what each link moved over carriers
// that no daemon counts: when the link has its first such carrier, at most every reportEvery while
// it moves more, and when it is over. The helper thus has figures even for a process that is
// killed.

// reportEvery is the minimum time between two reports of one link.
const reportEvery = 30 * time.Second

// account records what was reported of a link. It is owned by the goroutine that watches the mesh,
// and by the end of Serve after that.
type account struct {
	since    time.Time // start of the link
	looked   time.Time // last check for something to report; zero: never
	reported overlay.Traffic
}

// report sends the reporter the traffic of all links.
func (m *Mesh) report(now time.Time) {
	if m.reporter == nil {
		return
	}
	for _, sv := range m.kept() {
		sv.report(now, false)
	}
	m.mu.Lock()
	over := m.ended
	m.ended = nil
	m.mu.Unlock()
	for _, sv := range over {
		sv.report(now, true)
	}
}

func (sv *supervisor) report(now time.Time, over bool) {
	path, a := sv.link.open.Load(), &sv.account
	first := a.looked.IsZero()
	if path == nil || !sv.link.up.Load() { // another carrier became the link
		return
	}
	if !over && !first && now.Sub(a.looked) < reportEvery {
		return
	}
	a.looked = now
	t := overlay.Traffic{
		Link: sv.link.id, Rank: sv.link.Peer.Rank, Peer: path.Peer, Technique: path.Technique,
		Lasted: now.Sub(a.since), Over: over,
	}
	t.Sent, t.Received = sv.link.stream.Traffic()
	if over || first || t.Sent != a.reported.Sent || t.Received != a.reported.Received {
		a.reported = t
		sv.mesh.reporter.Report(t)
	}
}
