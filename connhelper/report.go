package connhelper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// reports tells the frontal, in the background, what became of connections.
type reports struct {
	*common
	calls   reportTimes // by site
	relays  reportTimes // that work, by proxy
	fullNAT reportTimes
}

// outcome reports the result of a technique to the directory.
func (r *reports) outcome(to target, t overlay.Technique, took time.Duration, cause error) {
	r.report(nil, "", reportOf(to, t, took, cause))
}

// reportOf returns the report of the result of a technique.
func reportOf(to target, t overlay.Technique, took time.Duration, cause error) *controlpb.ReportRequest {
	request := &controlpb.ReportRequest{
		Target: control.ProcessToPB(to.point.Process), Generation: uint64(to.point.Generation), Technique: uint32(t),
		TargetSite: string(to.point.Node.Site), Plan: to.digest, SetupUs: uint32(min(took.Microseconds(), 1<<32-1)),
	}
	if cause != nil {
		request.Fault = control.Fault(cause)
	}
	if relayed, is := errors.AsType[*proxyError](cause); is {
		request.Proxy = relayed.proxy
	}
	return request
}

// called reports to the directory that a process of another site has dialled one of this node: the
// network between the sites is there. Where the two ends agree through the frontal it has seen that.
func (r *reports) called(p *process, path overlay.Path) {
	if path.Technique.Kind() != overlay.AskerDials || path.Peer.Site == r.node.Site {
		return
	}
	r.report(&r.calls, string(path.Peer.Site), &controlpb.ReportRequest{
		Target: control.ProcessToPB(p.name), Generation: uint64(p.generation), TargetSite: string(path.Peer.Site), Called: uint32(path.Technique),
	})
}

// relayWorks reports that a link was made through a proxy, whose capacity is what it was seen to carry.
func (r *reports) relayWorks(to target, proxy string) {
	r.report(&r.relays, proxy, &controlpb.ReportRequest{
		Target: control.ProcessToPB(to.point.Process), Generation: uint64(to.point.Generation), Technique: uint32(overlay.Relay), Proxy: proxy,
	})
}

// full reports to the frontal that the NAT before the site lets no new connection through.
func (r *reports) full(connections int) {
	r.tell(&r.fullNAT, "", fullReportEvery, func(ctx context.Context, f *frontal) error {
		_, err := controlpb.NewNodesClient(f.session.Conn()).SessionLimit(ctx, &controlpb.SessionLimitRequest{Connections: uint32(connections)})
		return err
	})
}

// report makes a report to the directory: if it is due, unless times is nil.
func (r *reports) report(times *reportTimes, name string, request *controlpb.ReportRequest) {
	r.tell(times, name, reportPause, func(ctx context.Context, f *frontal) error {
		_, err := f.directory().Report(ctx, request)
		return err
	})
}

// tell makes a call to the frontal, if there is a session and the call is due. It must not delay the
// dial, nor fail it.
func (r *reports) tell(times *reportTimes, name string, pause time.Duration, call func(context.Context, *frontal) error) {
	f, _ := r.uplink.currentFrontal()
	if f == nil || times != nil && !times.due(name, pause, time.Now()) {
		return
	}
	r.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.uplink.callBriefly(ctx, func() error { return control.FromStatus(call(ctx, f)) }); err != nil {
			r.log.Debug("cannot report", "error", err)
		}
	})
}

// reportTimes says when something was last reported of a site or proxy. One report tells as much as the many of
// all ranks; and who dials names its site itself.
type reportTimes struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

const (
	reportPause     = time.Second // between two reports of one site or proxy
	fullReportEvery = time.Minute // shorter than the time for which a frontal remembers a full NAT
	maxReportTimes  = 1024        // sites or proxies; then all are forgotten
)

// due reports whether to report something of a site or proxy now, at most once in pause.
func (c *reportTimes) due(name string, pause time.Duration, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[name]; ok && now.Sub(last) < pause {
		return false
	}
	if c.last == nil || len(c.last) >= maxReportTimes {
		c.last = map[string]time.Time{}
	}
	c.last[name] = now
	return true
}
