package randomnet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// inflict injects a fault and returns how to undo it.
type inflict func(ctx context.Context, g *grid.Grid, n Network) (undo func() error, err error)

// faults are the possible faults, by name. None of them removes the last path of two sites for
// longer than the fault lasts.
var faults = map[string]inflict{
	"kill":    kill,
	"freeze":  freeze,
	"cut":     cut,
	"forget":  forget,
	"shrink":  shrink,
	"names":   forgetNames,
	"delay":   worsen(func(s *wan.Shape) { s.Delay += 150 * time.Millisecond }),
	"loss":    worsen(func(s *wan.Shape) { s.Loss = 0.05 }),
	"trickle": worsen(func(s *wan.Shape) { s.Rate = 2_000_000 }),
}

// faultKinds returns the names in order.
func faultKinds() []string {
	var names []string
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// kill ends a daemon at once; undo starts it again.
func kill(ctx context.Context, g *grid.Grid, n Network) (func() error, error) {
	d := g.Daemon(n.Fault.At)
	d.Kill()
	return func() error { return d.Start(ctx) }, nil
}

// freeze stops a daemon without ending its connections.
func freeze(_ context.Context, g *grid.Grid, n Network) (func() error, error) {
	d := g.Daemon(n.Fault.At)
	return func() error { return d.Signal(syscall.SIGCONT) }, d.Signal(syscall.SIGSTOP)
}

// cut drops everything between two sites.
func cut(_ context.Context, g *grid.Grid, n Network) (func() error, error) {
	a, b := g.Lab.Place(n.Fault.At), g.Lab.Place(n.Fault.With)
	if a == b { // they share a provider, and have no wide area path between them
		return func() error { return nil }, nil
	}
	return func() error { return g.Lab.Restore(a, b) }, g.Lab.Cut(a, b)
}

// forget empties a site's connection tracking table.
func forget(_ context.Context, g *grid.Grid, n Network) (func() error, error) {
	return func() error { return nil }, g.Lab.Host(n.Fault.At + "/gw").ForgetFlows()
}

// forgetNames makes the broker's name resolve nowhere.
func forgetNames(_ context.Context, g *grid.Grid, _ Network) (func() error, error) {
	return g.Lab.RestoreNames, g.Lab.ForgetNames()
}

// shrink reduces the MTU of packets that leave a site.
func shrink(_ context.Context, g *grid.Grid, n Network) (func() error, error) {
	set := func(bytes int) error {
		return g.Lab.Host(n.Fault.At + "/gw").Do(func() error { return lab.SetMTU("wan0", bytes) })
	}
	return func() error { return set(1500) }, set(1300)
}

// worsen changes the paths between a site and all others.
func worsen(change func(*wan.Shape)) inflict {
	return func(_ context.Context, g *grid.Grid, n Network) (func() error, error) {
		site := g.Lab.Place(n.Fault.At)
		var undo []func() error
		var errs []error
		for ends, was := range g.Lab.Shapes() {
			if !isAt(site, ends[0]) && !isAt(site, ends[1]) {
				continue
			}
			shape := was
			change(&shape)
			errs = append(errs, g.Lab.Reshape(ends, shape))
			undo = append(undo, func() error { return g.Lab.Reshape(ends, was) })
		}
		return func() error {
			var errs []error
			for _, u := range undo {
				errs = append(errs, u())
			}
			return errors.Join(errs...)
		}, errors.Join(errs...)
	}
}

// isAt reports whether an end of a path is a site's gateway, or one of its uplinks.
func isAt(site, end string) bool { return end == site || strings.HasPrefix(end, site+"/") }

// happen waits until the job is running, injects the fault, and undoes it.
func (r *round) happen(ctx context.Context) error {
	f := r.net.Fault
	if err := pause(ctx, r.there, f.After); err != nil {
		return nil // the job has ended, and reports why
	}
	undo, err := faults[f.Kind](context.WithoutCancel(ctx), r.grid, r.net)
	if err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	sleep.For(ctx, f.For) // undone in any case
	if err := undo(); err != nil {
		return fmt.Errorf("undoing %v: %w", f, err)
	}
	return nil
}

// pause waits for begin, if not nil, and then for d.
func pause(ctx context.Context, begin <-chan struct{}, d time.Duration) error {
	if begin != nil {
		select {
		case <-begin:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return sleep.For(ctx, d)
}
