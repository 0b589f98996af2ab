package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Publish implements controlpb.DirectoryServer.
func (d directory) Publish(ctx context.Context, req *controlpb.PublishRequest) (*controlpb.PublishResponse, error) {
	list, bad, holder, err := d.publications(ctx, req.GetNames())
	if err != nil {
		return nil, d.b.fail(err)
	}
	for i := range list {
		if bad[i] == nil && list[i].Port == "" {
			bad[i] = malformed(fmt.Errorf("%q is published with no text", list[i].Name))
		}
	}
	good := make([]overlay.Publication, 0, len(list))
	var index []int // positions of list's elements in the request
	for i, p := range list {
		if bad[i] == nil {
			good, index = append(good, p), append(index, i)
		}
	}
	for i, err := range d.b.publish(ctx, control.SessionOf(ctx).Peer().Site, holder, good) {
		bad[index[i]] = err
	}
	refused := 0
	for i, p := range list {
		if bad[i] != nil {
			d.b.counters.fault(bad[i])
			if refused++; refused <= maxLogged {
				d.b.log.Info("name refused", "name", p.Name, "job", p.Process.Job, "rank", p.Process.Rank, "error", bad[i])
			}
			continue
		}
		d.b.counters.published.Add(1)
		d.b.log.Info("name published", "name", p.Name, "job", p.Process.Job, "rank", p.Process.Rank)
	}
	if refused > maxLogged {
		d.b.log.Info("more names refused", "by", control.SessionOf(ctx).Peer().String(), "count", refused-maxLogged)
	}
	return &controlpb.PublishResponse{Faults: control.Verdicts(bad)}, nil
}

// Unpublish implements controlpb.DirectoryServer.
func (d directory) Unpublish(ctx context.Context, req *controlpb.UnpublishRequest) (*controlpb.UnpublishResponse, error) {
	list, bad, holder, err := d.publications(ctx, req.GetNames())
	if err != nil {
		return nil, d.b.fail(err)
	}
	for i, p := range list {
		if bad[i] == nil {
			if bad[i] = d.b.registry.Unpublish(holder, p); bad[i] == nil {
				d.b.names.unpublish(p.Name, p.Process)
			}
		}
		if bad[i] != nil {
			d.b.counters.fault(bad[i])
		}
	}
	return &controlpb.UnpublishResponse{Faults: control.Verdicts(bad)}, nil
}

// publications validates the publications that a frontal sends for its site.
func (d directory) publications(ctx context.Context, names []*controlpb.Publication) (list []overlay.Publication, bad []error, holder registry.Holder, err error) {
	if _, holder, err = d.b.caller(ctx, control.RoleFrontal); err != nil {
		return nil, nil, 0, err
	}
	if n := len(names); n > maxQuestions {
		return nil, nil, 0, fmt.Errorf("%w: %d names in one call, at most %d are taken; send several calls", overlay.ErrOverloaded, n, maxQuestions)
	}
	list, bad = make([]overlay.Publication, len(names)), make([]error, len(names))
	for i, m := range names {
		if list[i], err = control.PublicationFromPB(m); err != nil {
			bad[i] = malformed(err)
		}
	}
	return list, bad, holder, nil
}

// LookupName implements controlpb.DirectoryServer.
func (d directory) LookupName(ctx context.Context, req *controlpb.LookupNameRequest) (*controlpb.LookupNameResponse, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	if err := overlay.CheckServiceName(req.GetName()); err != nil {
		return nil, d.b.fail(malformed(err))
	}
	d.b.counters.lookups.Add(1)
	if err := d.b.waits.Take(s.Peer().Site, 1); err != nil {
		d.b.auditRefusal(s.Peer().String(), "waits", err)
		return nil, d.b.fail(err)
	}
	defer d.b.waits.Give(s.Peer().Site, 1)
	wait := min(time.Duration(req.GetWaitMs())*time.Millisecond, maxAwait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p, err := d.b.lookupName(ctx, req.Name, wait > 0)
	if err != nil {
		return nil, d.b.fail(err)
	}
	return &controlpb.LookupNameResponse{Port: p.Port, Owner: control.ProcessToPB(p.Process)}, nil
}
