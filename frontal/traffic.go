package frontal

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/wire"
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
		_, by := f.carriedNow()
		report := traffic.Report{Life: f.epoch, Counts: by.moved.Counts()}
		if len(report.Counts) == 0 {
			continue
		}
		if err := f.up.OnEach(func(s *control.Session) error { return f.tellTrafficOn(s, report) }); err != nil {
			f.log.Debug("the broker is not told what passed the gateway; it is told again", "every", trafficPeriod.String(), "error", err)
		}
	}
}

// tellTrafficOn tells one broker. One of an older version does not want to know.
func (f *Frontal) tellTrafficOn(s *control.Session, report traffic.Report) error {
	ctx, cancel := context.WithTimeout(f.ctx, uplink.CallTimeout)
	defer cancel()
	_, err := controlpb.NewTrafficClient(s.Conn()).Carried(ctx, report.ToPB())
	if errors.Is(control.FromStatus(err), wire.ErrVersion) {
		return nil
	}
	return f.up.CallError(s, err)
}
