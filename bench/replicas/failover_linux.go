package replicas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// failoverKey is what Options.Only is matched with for how long a rank waits for one of which a replica dies.
const failoverKey = "failover/kill"

// failoverJobs is how many jobs measure that for each turn of the other rows.
const failoverJobs = 4

// failover measures in how many seconds a message is there for which a process waits when its sender dies.
func (r *run) failover(ctx context.Context) error {
	var waits []float64
	err := r.onHosts(2*failoverRanks, nil, func() error {
		for range failoverJobs * r.Repeat {
			w, err := r.deaths(ctx)
			if err != nil {
				return err
			}
			waits = append(waits, w...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.report.Add(failover(waits))
}

// deaths runs a job, and returns what each death in it cost.
func (r *run) deaths(ctx context.Context) (waits []float64, err error) {
	g, err := r.start(ctx, portsFrom, job{ranks: failoverRanks, replicas: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	for rank := range failoverRanks - 1 {
		if err := g.tell(fmt.Sprintf("%s %d", orderRing, rank)); err != nil {
			return nil, err
		}
		var died, heard int64
		if err := errors.Join(g.all[0].Hear(orderBound, "died", &died), g.all[1].Hear(orderBound, "heard", &heard)); err != nil {
			return nil, err
		}
		if err := g.all[0].Stop(); err == nil || !strings.Contains(err.Error(), "killed") {
			return nil, fmt.Errorf("replica 0 of rank %d was to be killed: %v", rank, err)
		}
		g.all = g.all[1:]
		if _, err := g.answers(); err != nil {
			return nil, err
		}
		waits = append(waits, time.Duration(heard-died).Seconds())
	}
	return waits, nil
}
