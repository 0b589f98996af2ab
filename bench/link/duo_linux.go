package link

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
)

//go:embed c/end.c
var cSource []byte

// A duo is the two ends of a connection.
type duo struct {
	listener, dialler *runner.Process
	congestion        string // in use
}

// newDuo starts two ends, each on a processor of its own unless they share one, and waits until they
// are connected. command returns the command line of an end that listens, or of one that dials.
func newDuo(ctx context.Context, w *runner.Wire, oneCPU bool, command func(role ...string) []string) (_ *duo, err error) {
	d := new(duo)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	listen := runner.Command{Args: command("listen", runner.LeftAddr.String()), CPU: 1}
	if d.listener, err = runner.Start(ctx, w.Left, listen); err != nil {
		return nil, err
	}
	var port string
	if err := d.listener.Hear(joinBound, "listening", &port); err != nil {
		return nil, err
	}
	dial := runner.Command{Args: command("dial", runner.LeftAddr.String(), port), CPU: 2}
	if oneCPU {
		dial.CPU = listen.CPU
	}
	if d.dialler, err = runner.Start(ctx, w.Right, dial); err != nil {
		return nil, err
	}
	var other string
	err = errors.Join(d.listener.Hear(joinBound, "ready", &other), d.dialler.Hear(joinBound, "ready", &d.congestion))
	if err == nil && other != d.congestion {
		err = fmt.Errorf("%v: its ends use different congestion controls, %s and %s", d.dialler, other, d.congestion)
	}
	return d, err
}

// stop ends the dialler first: the other end sees the end of the stream while it is idle.
func (d *duo) stop() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.dialler.Stop(), d.listener.Stop())
}

// orderBound is the timeout of an order: many times the duration of the slowest.
const orderBound = time.Minute

// do makes both ends carry out an order and returns the dialler's answer.
func (d *duo) do(order string) (a, b float64, err error) {
	for _, end := range []*runner.Process{d.listener, d.dialler} {
		if err := end.Tell(order); err != nil {
			return 0, 0, err
		}
	}
	var none1, none2 float64
	err = d.dialler.Hear(orderBound, "ok", &a, &b)
	return a, b, errors.Join(err, d.listener.Hear(orderBound, "ok", &none1, &none2))
}
