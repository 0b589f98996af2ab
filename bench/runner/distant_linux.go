package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// DistantHosts are hosts around a forwarder, which emulates distance between them.
type DistantHosts struct {
	*star.Star
	Emulator *wan.Emulator      // nil without any distance
	stop     context.CancelFunc // of the emulator, as done
	done     chan error         // what its Serve has returned
}

// Between returns the path from one host to another.
func Between(from, to int, shape wan.Shape) wan.Path {
	return wan.Path{From: star.Port(from), To: star.Port(to), In: star.Port(from), Out: star.Port(to), Shape: shape}
}

// NewDistantHosts makes so many hosts with these paths between them; without any, nothing is emulated.
func NewDistantHosts(hosts int, paths ...wan.Path) (*DistantHosts, error) {
	s, err := star.New(hosts)
	if err != nil {
		return nil, err
	}
	p := &DistantHosts{Star: s}
	if len(paths) == 0 {
		return p, nil
	}
	err = s.Centre.Do(func() (err error) {
		p.Emulator, err = wan.New(paths, wan.Options{Seed: 1})
		return err
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	p.done = make(chan error, 1)
	go func() { p.done <- p.Emulator.Serve(ctx) }() // Close waits for it
	return p, nil
}

// Close ends the hosts. An emulator that failed, or that could not keep up, is an error: its figures
// would be wrong.
func (p *DistantHosts) Close() (err error) {
	if p.Emulator != nil {
		p.stop()
		err = <-p.done
		if n := p.Emulator.Overruns(); n > 0 {
			err = errors.Join(err, fmt.Errorf("the emulator missed %d packets: this machine is too busy for figures", n))
		}
	}
	p.Star.Close()
	return err
}
