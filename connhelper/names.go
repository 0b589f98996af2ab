package connhelper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// nameWait bounds a request about names, in addition to the requested wait for a name: the frontal
// or the broker may be restarting.
const nameWait = 15 * time.Second

// serveName answers one request of a process about names, in a goroutine that work waits for.
func (h *Helper) serveName(ctx context.Context, p *process, work *sync.WaitGroup, request uint32, budget time.Duration, do func(context.Context) (string, error)) {
	ctx, done, err := p.begin(ctx, request, budget)
	if err != nil {
		p.fail(request, err)
		return
	}
	release, err := h.admit(p)
	if err != nil {
		done()
		p.fail(request, err)
		return
	}
	work.Go(func() {
		port, err := do(ctx)
		release()
		done() // before the answer, after which the number may be reused
		if err != nil {
			p.fail(request, err)
			return
		}
		p.conn.Send(&wire.LocalNamed{Request: request, Port: port}, nil)
	})
}

// publish records a name of p, so that the next session with the frontal publishes it again, and
// publishes it on the current one.
func (h *Helper) publish(ctx context.Context, p *process, f *wire.LocalPublish) error {
	p.mu.Lock()
	before, had := p.names[f.Name]
	if !had && len(p.names) >= overlay.MaxNamesPerJob {
		p.mu.Unlock()
		return fmt.Errorf("%w: %v has published %d names, the limit for a job", overlay.ErrOverloaded, p.name, overlay.MaxNamesPerJob)
	}
	err := h.keepName(p, f.Name, f.Port)
	p.mu.Unlock()
	if err != nil {
		h.auditOverBudget(p, err)
		return err
	}
	err = h.publishAt(ctx, p, f)
	if err == nil {
		h.log.Info("name published", "name", f.Name, "process", p.name.String())
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case f.Again && errors.Is(err, overlay.ErrUnreachable): // the name remains published: the next session publishes it again
	case had:
		if _, has := p.names[f.Name]; has { // it was not withdrawn meanwhile
			p.names[f.Name] = before
		}
	default:
		h.dropName(p, f.Name)
	}
	return err
}

// keepName records a name of p and counts it against its account. p.mu is held.
func (h *Helper) keepName(p *process, name, port string) error {
	if _, had := p.names[name]; !had {
		if err := h.budgets.names.Take(uid(p.uid), 1); err != nil {
			return fmt.Errorf("helper %v: %w", h.node, err)
		}
	}
	p.names[name] = port
	return nil
}

// dropName undoes keepName, if the name was recorded. p.mu is held.
func (h *Helper) dropName(p *process, name string) {
	if _, had := p.names[name]; had {
		delete(p.names, name)
		h.budgets.names.Give(uid(p.uid), 1)
	}
}

// dropNames drops all names of a process that has ended.
func (h *Helper) dropNames(p *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.names {
		h.dropName(p, name)
	}
}

func (h *Helper) publishAt(ctx context.Context, p *process, f *wire.LocalPublish) error {
	to, err := h.frontalFor(ctx, p)
	if err != nil {
		return err
	}
	r, err := to.directory().Publish(ctx, &controlpb.PublishRequest{Again: f.Again, Names: []*controlpb.Publication{p.publication(f.Name, f.Port)}})
	if err != nil {
		return control.FromStatus(err)
	}
	return verdict(r.Faults)
}

// publishAgain publishes the names of p on a new session with the frontal. A name that was lost
// meanwhile is dropped and logged.
func (h *Helper) publishAgain(ctx context.Context, f *frontal, p *process) error {
	req := &controlpb.PublishRequest{Again: true}
	p.mu.Lock()
	for name, port := range p.names {
		req.Names = append(req.Names, p.publication(name, port))
	}
	p.mu.Unlock()
	if len(req.Names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	r, err := f.directory().Publish(ctx, req)
	if err != nil {
		return control.FromStatus(err)
	}
	errs, err := control.VerdictErrs(r.Faults, len(req.Names))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, err := range errs {
		if err != nil {
			h.log.Warn("a name that was published before is lost", "name", req.Names[i].Name, "process", p.name.String(), "error", err)
			h.dropName(p, req.Names[i].Name)
		}
	}
	return nil
}

// unpublish withdraws a name. One that is not known here may be known to the frontal or broker, if
// an earlier helper, or an attempt of this one, has published it.
func (h *Helper) unpublish(ctx context.Context, p *process, name string) error {
	p.mu.Lock()
	h.dropName(p, name)
	p.mu.Unlock()
	f, err := h.frontalFor(ctx, p)
	if err != nil {
		return err
	}
	r, err := f.directory().Unpublish(ctx, &controlpb.UnpublishRequest{Names: []*controlpb.Publication{p.publication(name, "")}})
	if err != nil {
		return control.FromStatus(err)
	}
	return verdict(r.Faults)
}

// lookupName asks the frontal, which waits for the name, and the next session if this one ends
// meanwhile.
func (h *Helper) lookupName(ctx context.Context, l *wire.LocalLookup) (string, error) {
	end := time.Now().Add(min(l.Budget, maxBudget))
	for {
		port, err := h.lookupNameOnce(ctx, l.Name, max(time.Until(end), 0))
		if !errors.Is(err, overlay.ErrUnreachable) || !sleepFor(ctx, 100*time.Millisecond, end) {
			return port, err
		}
	}
}

func (h *Helper) lookupNameOnce(ctx context.Context, name string, wait time.Duration) (string, error) {
	f, err := h.frontal(ctx)
	if err != nil {
		return "", err
	}
	r, err := f.directory().LookupName(ctx, &controlpb.LookupNameRequest{Name: name, WaitMs: uint32(wait.Milliseconds())})
	if err != nil {
		return "", control.FromStatus(err)
	}
	if err := overlay.CheckPort(r.Port); err != nil {
		return "", fmt.Errorf("%w: the frontal's answer: %w", wire.ErrMalformed, err)
	}
	return r.Port, nil
}

// publication returns a name of p in message form.
func (p *process) publication(name, port string) *controlpb.Publication {
	return control.PublicationToPB(overlay.Publication{Name: name, Port: port, Process: p.name, Generation: p.generation})
}

// verdict returns the error of the only item of a call.
func verdict(faults []*controlpb.Fault) error {
	errs, err := control.VerdictErrs(faults, 1)
	if err != nil {
		return err
	}
	return errs[0]
}
