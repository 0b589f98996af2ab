package frontal

import (
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// trafficPeriod is the interval of the reports to brokers about carried traffic.
const trafficPeriod = 5 * time.Second

// tellTraffic reports carried traffic to the brokers, if there was any, until the frontal ends.
func (f *Frontal) tellTraffic() {
	period := time.NewTicker(trafficPeriod)
	defer period.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-period.C:
		}
		noteWorked(f.memory, f.gateway, time.Now())
		_, by := f.gateway.Totals()
		report := traffic.Report{Life: f.epoch, Counts: by.Counts()}
		if len(report.Counts) == 0 {
			continue
		}
		if err := f.up.TellTraffic(f.ctx, report); err != nil {
			f.log.Debug("cannot report the gateway's traffic to the broker; retrying", "every", trafficPeriod.String(), "error", err)
		}
	}
}

// noteWorked records in memory by which techniques the gateway's own links carry, whatever nodes say of these.
func noteWorked(memory *outcomes.Memory, g *gateway.Gateway, now time.Time) {
	for _, w := range gateway.Worked(g, now.Add(-outcomes.SeenLife)) {
		if far, err := overlay.ParseNodeID(w.Far); err == nil {
			memory.Seen(far.Site, w.Far, w.Technique, w.At)
		}
	}
}
