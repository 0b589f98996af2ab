// Package waitany waits for any of several requests that belong to several worlds of one process. Each world has an
// engine with a lock, links and rings of its own, and in the debug mode a watcher. It keeps no state.
package waitany

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Wait is engine.WaitAnyHandle for started requests of several engines. A goroutine waits in each engine; the first
// that finds a request ends the others, which abandon none.
func Wait(ctx context.Context, requests []debug.Request) (int, error) {
	defer watch(requests)()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	own := map[*engine.Engine][]int{} // the indices of an engine's requests
	for i, r := range requests {
		e := r.Handle().Engine()
		own[e] = append(own[e], i)
	}
	outcomes := make(chan outcome, len(own))
	for _, at := range own {
		go func() { outcomes <- waitOne(ctx, requests, at) }() // ends with ctx
	}
	found := outcome{i: -1}
	for range own {
		switch o := <-outcomes; {
		case o.err == nil:
			found = o
			stop()
		case found.i < 0:
			found.err = o.err
		}
	}
	return found.i, found.err
}

// outcome is what a wait in one engine found: the index of a request, or why there is none.
type outcome struct {
	i   int
	err error
}

// waitOne waits for any of the requests with the given indices, all of one engine.
func waitOne(ctx context.Context, requests []debug.Request, at []int) outcome {
	handles := make([]*engine.Handle, len(at))
	for k, i := range at {
		handles[k] = requests[i].Handle()
	}
	k, err := engine.WaitAnyHandle(ctx, handles, -1)
	if err != nil {
		return outcome{-1, err}
	}
	return outcome{at[k], nil}
}

// watch records the wait with each watcher of the requests; the caller calls the returned function at its end.
func watch(requests []debug.Request) (over func()) {
	own := map[*debug.Watcher][]debug.Request{}
	for _, r := range requests {
		if s := r.Observation(); s != nil {
			own[s.Watcher()] = append(own[s.Watcher()], r)
		}
	}
	var ends []func()
	for w, seen := range own {
		ends = append(ends, w.WaitingAny(seen, true))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
