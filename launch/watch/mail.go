package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// maxQueue bounds the messages to a host that wait for one in flight. A further one replaces the
// oldest: later messages have newer information.
const maxQueue = 4

// messageQueues sends messages, to each host one after the other, so that a path that hangs delays no other
// host.
type messageQueues struct {
	w *Watch

	mu    sync.Mutex // not held while sending
	hosts map[overlay.NodeID]*hostQueue
	over  map[overlay.NodeID]time.Time // when a host last reported it
	idle  chan struct{}                // not nil while wait waits for all queues to drain
}

// hostQueue is the queue of one host. It exists while one of its messages is in flight.
type hostQueue struct{ queue [][]byte }

// send queues a message, to be sent until ctx ends.
func (m *messageQueues) send(ctx context.Context, to overlay.NodeID, message []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.hosts[to]; l != nil {
		if len(l.queue) == maxQueue {
			l.queue = l.queue[1:]
		}
		l.queue = append(l.queue, message)
		return
	}
	l := &hostQueue{queue: [][]byte{message}}
	m.hosts[to] = l
	m.w.work.Go(func() { m.run(ctx, to, l) })
}

func (m *messageQueues) run(ctx context.Context, to overlay.NodeID, l *hostQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(l.queue) > 0 && ctx.Err() == nil {
		next := l.queue[0]
		l.queue = l.queue[1:]
		m.mu.Unlock()
		m.sendOne(ctx, to, next)
		m.mu.Lock()
	}
	delete(m.hosts, to)
	if len(m.hosts) == 0 && m.idle != nil {
		close(m.idle)
		m.idle = nil
	}
}

func (m *messageQueues) sendOne(ctx context.Context, to overlay.NodeID, message []byte) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := m.w.cfg.Carrier.Send(ctx, to, message)
	if errors.Is(err, ErrOver) {
		m.mu.Lock()
		m.over[to] = time.Now()
		m.mu.Unlock()
	}
	if err != nil {
		m.w.cfg.Log.Debug("cannot send news to a host", "node", to.String(), "error", err)
	}
}

// reportedOver reports whether a host reported within of that the job is over there.
func (m *messageQueues) reportedOver(node overlay.NodeID, of time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, said := m.over[node]
	return said && time.Since(at) < of
}

// wait returns when all messages were sent, or after d. send must not be called meanwhile.
func (m *messageQueues) wait(d time.Duration) {
	m.mu.Lock()
	if len(m.hosts) == 0 {
		m.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	m.idle = idle
	m.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}
