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

// publishedNames publishes names for the processes of this node and looks names up. The names of a
// process are in the process, under its lock.
type publishedNames struct {
	*common
}

// serve answers one request of a process about names, in a goroutine that work waits for.
func (n *publishedNames) serve(ctx context.Context, p *process, work *sync.WaitGroup, request uint32, budget time.Duration, do func(context.Context) (string, error)) {
	ctx, done, err := p.begin(ctx, request, budget)
	if err != nil {
		p.fail(request, err)
		return
	}
	release, err := n.budgets.admit(p)
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
func (n *publishedNames) publish(ctx context.Context, p *process, f *wire.LocalPublish) error {
	p.mu.Lock()
	before, had := p.names[f.Name]
	if !had && len(p.names) >= overlay.MaxNamesPerJob {
		p.mu.Unlock()
		return fmt.Errorf("%w: %v has published %d names, the limit for a job", overlay.ErrOverloaded, p.name, overlay.MaxNamesPerJob)
	}
	err := n.keep(p, f.Name, f.Port)
	p.mu.Unlock()
	if err != nil {
		n.audit.overBudget(p, err)
		return err
	}
	err = n.publishAt(ctx, p, f)
	if err == nil {
		n.log.Info("name published", "name", f.Name, "process", p.name.String())
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
		n.drop(p, f.Name)
	}
	return err
}

// keep records a name of p and counts it against its account. p.mu is held.
func (n *publishedNames) keep(p *process, name, port string) error {
	if _, had := p.names[name]; !had {
		if err := n.budgets.names.Take(uid(p.uid), 1); err != nil {
			return fmt.Errorf("helper %v: %w", n.node, err)
		}
	}
	p.names[name] = port
	return nil
}

// drop undoes keep, if the name was recorded. p.mu is held.
func (n *publishedNames) drop(p *process, name string) {
	if _, had := p.names[name]; had {
		delete(p.names, name)
		n.budgets.names.Give(uid(p.uid), 1)
	}
}

// dropAll drops all names of a process that has ended.
func (n *publishedNames) dropAll(p *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.names {
		n.drop(p, name)
	}
}

func (n *publishedNames) publishAt(ctx context.Context, p *process, f *wire.LocalPublish) error {
	to, err := n.uplink.frontalFor(ctx, p)
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
func (n *publishedNames) publishAgain(ctx context.Context, f *frontal, p *process) error {
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
			n.log.Warn("a name that was published before is lost", "name", req.Names[i].Name, "process", p.name.String(), "error", err)
			n.drop(p, req.Names[i].Name)
		}
	}
	return nil
}

// unpublish withdraws a name. One that is not known here may be known to the frontal or broker, if
// an earlier helper, or an attempt of this one, has published it.
func (n *publishedNames) unpublish(ctx context.Context, p *process, name string) error {
	p.mu.Lock()
	n.drop(p, name)
	p.mu.Unlock()
	f, err := n.uplink.frontalFor(ctx, p)
	if err != nil {
		return err
	}
	r, err := f.directory().Unpublish(ctx, &controlpb.UnpublishRequest{Names: []*controlpb.Publication{p.publication(name, "")}})
	if err != nil {
		return control.FromStatus(err)
	}
	return verdict(r.Faults)
}

// lookup asks the frontal, which waits for the name, and the next session if this one ends
// meanwhile.
func (n *publishedNames) lookup(ctx context.Context, l *wire.LocalLookup) (string, error) {
	end := time.Now().Add(min(l.Budget, maxBudget))
	for {
		port, err := n.lookupOnce(ctx, l.Name, max(time.Until(end), 0))
		if !errors.Is(err, overlay.ErrUnreachable) || !sleepFor(ctx, 100*time.Millisecond, end) {
			return port, err
		}
	}
}

func (n *publishedNames) lookupOnce(ctx context.Context, name string, wait time.Duration) (string, error) {
	f, err := n.uplink.frontal(ctx)
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
