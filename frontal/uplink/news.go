package uplink

import (
	"context"
	"errors"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/wire"
)

// JoinAgain sends the site's changes to every broker that has a session; a later session sends them
// anyway.
func (u *Set) JoinAgain(ctx context.Context, request func() *controlpb.JoinRequest) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return u.OnEach(func(s *control.Session) error {
		_, err := controlpb.NewSitesClient(s.Conn()).Join(ctx, request())
		return u.CallError(s, err)
	})
}

// maxToldBrokers bounds the brokers of which a broker is told.
const maxToldBrokers = 8

// brokers returns the brokers whose names are known, each once, and whether they have a session.
func (u *Set) brokers() (all []*controlpb.BrokerSession) {
	u.mu.Lock()
	defer u.mu.Unlock()
	byName := map[string]*controlpb.BrokerSession{}
	for _, l := range u.All {
		one := byName[l.broker]
		if one == nil && l.broker != "" && len(all) < maxToldBrokers {
			one = &controlpb.BrokerSession{Broker: l.broker}
			byName[l.broker] = one
			all = append(all, one)
		}
		if one != nil && l.session != nil {
			one.Open = true
		}
	}
	return all
}

// TellHosts sends the hosts of the site, and which brokers have sessions, to every broker that has one.
func (u *Set) TellHosts(ctx context.Context, list func() []offer.Host) error {
	return u.OnEach(func(s *control.Session) error {
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		pb := offer.ListToPB(list())
		pb.Brokers = u.brokers()
		_, err := controlpb.NewSitesClient(s.Conn()).Hosts(ctx, pb)
		return u.CallError(s, err)
	})
}

// TellTraffic reports carried traffic to every broker that has a session.
func (u *Set) TellTraffic(ctx context.Context, report traffic.Report) error {
	return u.OnEach(func(s *control.Session) error { return u.tellTrafficOn(ctx, s, report) })
}

// tellTrafficOn reports to one broker. A broker of an older version does not support the call.
func (u *Set) tellTrafficOn(ctx context.Context, s *control.Session, report traffic.Report) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := controlpb.NewTrafficClient(s.Conn()).Report(ctx, report.ToPB())
	if errors.Is(control.FromStatus(err), wire.ErrVersion) {
		return nil
	}
	return u.CallError(s, err)
}

// Report reports a connection attempt to the brokers. It never blocks: what does not fit is
// dropped, for the brokers only count attempts.
func (u *Set) Report(r *controlpb.ReportRequest) {
	select {
	case u.reports <- r:
	default:
	}
}

// ForwardReports reports failed connections to the brokers, which count them. Nothing waits for it.
// It ends with life.
func (u *Set) ForwardReports(life context.Context) {
	for {
		select {
		case <-life.Done():
			return
		case r := <-u.reports:
			ctx, cancel := context.WithTimeout(life, CallTimeout)
			err := u.OnEach(func(s *control.Session) error {
				_, err := controlpb.NewDirectoryClient(s.Conn()).Report(ctx, r)
				return control.FromStatus(err)
			})
			cancel()
			if err != nil {
				u.log.Debug("report not delivered", "error", err)
			}
		}
	}
}

// Renew requests a new certificate from the brokers, one of which issues it.
func (u *Set) Renew(ctx context.Context, chain [][]byte) ([][]byte, error) {
	if _, err := u.Get(ctx); err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range u.Sessions() {
		fresh, err := s.Renew(ctx, chain)
		if err == nil {
			return fresh, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
