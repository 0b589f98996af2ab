package frontal

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
)

// trafficPeriod is how often brokers are told what passed the gateway.
const trafficPeriod = 5 * time.Second

// tellTraffic tells the brokers what passed the gateway, if anything ever did,
// until the frontal ends.
func (f *Frontal) tellTraffic() {
	period := time.NewTicker(trafficPeriod)
	defer period.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-period.C:
		}
		_, by := f.gateway.Moved()
		report := traffic.Report{Life: f.epoch, Counts: by.Counts()}
		if len(report.Counts) == 0 {
			continue
		}
		if err := f.up.TellTraffic(f.ctx, report); err != nil {
			f.log.Debug("the broker is not told what passed the gateway; it is told again", "every", trafficPeriod.String(), "error", err)
		}
	}
}
