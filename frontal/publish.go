package frontal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Publish records names of a node's processes and passes them on to the broker, which decides. The
// next session with it publishes them again; while it is unreachable, only a name that was already
// published is accepted.
func (d *directoryServer) Publish(ctx context.Context, req *controlpb.PublishRequest) (*controlpb.PublishResponse, error) {
	id, list, errs, err := d.f.publications(ctx, "Publish", req.Names)
	if err != nil {
		return nil, control.Status(err)
	}
	refused := 0
	for i, p := range list {
		if errs[i] == nil {
			errs[i] = d.f.publish(ctx, id.Name, p, req.Again)
		}
		if errs[i] == nil {
			continue
		}
		if refused++; refused <= maxLogged {
			d.f.log.Info("name refused", "name", p.Name, "job", p.Process.Job, "rank", p.Process.Rank, "error", errs[i])
		}
	}
	if refused > maxLogged {
		d.f.log.Info("more names refused", "node", id.Node().String(), "count", refused-maxLogged)
	}
	return &controlpb.PublishResponse{Faults: control.Verdicts(errs)}, nil
}

// publish records one name, so that a session with the broker that begins in the meantime publishes
// it, and calls the broker.
func (f *Frontal) publish(ctx context.Context, node string, p overlay.Publication, again bool) error {
	undo, err := f.registry.Publish(node, p)
	if err != nil {
		return fmt.Errorf("%s: %w", f.who, err)
	}
	if !again {
		_, err = f.up.Get(ctx)
	}
	if err == nil {
		err = f.up.Publish(ctx, p)
	}
	if err == nil || again && uplink.IsAway(err) {
		return nil
	}
	undo()
	return err
}

// Unpublish removes names of a node's processes, here and at the broker.
func (d *directoryServer) Unpublish(ctx context.Context, req *controlpb.UnpublishRequest) (*controlpb.UnpublishResponse, error) {
	id, list, errs, err := d.f.publications(ctx, "Unpublish", req.Names)
	if err != nil {
		return nil, control.Status(err)
	}
	for i, p := range list {
		if errs[i] == nil {
			errs[i] = d.f.unpublish(ctx, id.Name, p)
		}
	}
	return &controlpb.UnpublishResponse{Faults: control.Verdicts(errs)}, nil
}

// unpublish removes one name. An unreachable broker is not notified: a name that the next session
// does not publish expires with its lease.
func (f *Frontal) unpublish(ctx context.Context, node string, p overlay.Publication) error {
	f.registry.Unpublish(node, p)
	return f.up.Unpublish(ctx, p)
}

// publications checks a helper's list of its processes' names.
func (f *Frontal) publications(ctx context.Context, call string, names []*controlpb.Publication) (id control.Identity, list []overlay.Publication, errs []error, err error) {
	if id, err = f.helperOf(ctx, call); err != nil {
		return id, nil, nil, err
	}
	if n := len(names); n > maxQuestions {
		return id, nil, nil, fmt.Errorf("%s: %w: %d names in one call, at most %d are taken", f.who, overlay.ErrOverloaded, n, maxQuestions)
	}
	list, errs = make([]overlay.Publication, len(names)), make([]error, len(names))
	for i, m := range names {
		if list[i], err = control.PublicationFromPB(m); err != nil {
			errs[i] = fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
		}
	}
	return id, list, errs, nil
}

// publishAll publishes all names of the site on a new session with the broker.
func (f *Frontal) publishAll(ctx context.Context, s *control.Session) error {
	list := f.registry.Publications()
	for rest := list; len(rest) > 0; rest = rest[min(uplink.Chunk, len(rest)):] {
		batch := rest[:min(uplink.Chunk, len(rest))]
		verdicts, err := f.up.PublishAt(ctx, s, batch)
		if err != nil {
			return err
		}
		for i, verdict := range verdicts {
			if verdict == nil {
				continue
			}
			// Another process published it while this site was disconnected, or the process has
			// left.
			f.log.Warn("a name that was published before is lost", "name", batch[i].Name, "job", batch[i].Process.Job, "rank", batch[i].Process.Rank, "error", verdict)
			f.registry.Lose(batch[i])
		}
	}
	return nil
}

// LookupName looks a name up at the broker, repeatedly while the caller waits.
func (d *directoryServer) LookupName(ctx context.Context, req *controlpb.LookupNameRequest) (*controlpb.LookupNameResponse, error) {
	id, err := d.f.helperOf(ctx, "LookupName")
	if err != nil {
		return nil, control.Status(err)
	}
	if err := overlay.CheckServiceName(req.Name); err != nil {
		return nil, control.Status(fmt.Errorf("%s: %w: %w", d.f.who, wire.ErrMalformed, err))
	}
	done, err := d.f.waiting(id)
	if err != nil {
		return nil, control.Status(err)
	}
	defer done()
	end := time.Now().Add(min(time.Duration(req.WaitMs)*time.Millisecond, maxAwait))
	for {
		resp, err := d.f.up.LookupName(ctx, req.Name, time.Until(end))
		passing := errors.Is(err, overlay.ErrUnknownName) || uplink.IsAway(err)
		// A broker that answers at once instead of waiting must not turn this into a busy loop.
		if !passing || time.Until(end) <= 0 || sleep.For(ctx, min(50*time.Millisecond, time.Until(end))) != nil {
			return resp, control.Status(err)
		}
	}
}
