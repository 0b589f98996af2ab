package registry

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// absence is what is known of a rank that is not registered: its former registration, or why it was
// refused.
type absence struct {
	former  *overlay.AccessPoint
	refused error
}

// waiters are the callers waiting for one process; done is closed when it registers or is refused.
type waiters struct {
	done  chan struct{}
	entry Entry // the entry at that time: the process may leave again before the waiters read it
	count int
}

// end wakes the callers that wait for a rank. The caller must hold mu.
func (j *jobState) end(rank uint32, e Entry) {
	if w := j.waiters[rank]; w != nil {
		w.entry = e
		close(w.done)
		delete(j.waiters, rank)
	}
}

// Refused records that a process's registration was refused permanently, and why. The record is
// kept, for a job with registered processes, until the process registers or the job has no
// registered process left; callers of Await for the process return at once.
func (m *Registry) Refused(name overlay.ProcessName, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job := m.jobs[name.Job]
	if job == nil || len(job.ranks) == 0 || job.ranks[name.Rank] != nil {
		return
	}
	m.missing(job, name.Rank, absence{refused: why})
	job.end(name.Rank, Entry{Refused: why})
}

// missing records why a rank is not registered, in place of the previous record.
func (m *Registry) missing(job *jobState, rank uint32, a absence) {
	m.present(job, rank)
	if m.absent >= m.limits.Processes {
		return
	}
	if job.absent == nil {
		job.absent = make(map[uint32]absence)
	}
	job.absent[rank] = a
	m.absent++
}

// present removes the record of why a rank is not registered.
func (m *Registry) present(job *jobState, rank uint32) {
	if _, known := job.absent[rank]; known {
		delete(job.absent, rank)
		m.absent--
	}
}

// Await returns the process's entry as soon as there is one, or the error that Refused recorded. It
// fails with ErrUnknownProcess when ctx ends, with ErrEnded at once for a process that died, and
// with ErrOverloaded at once when too many callers wait.
func (m *Registry) Await(ctx context.Context, name overlay.ProcessName) (Entry, error) {
	e, w, err := m.wait(name)
	if w == nil {
		return e, err
	}
	defer m.leaveQueue(name, w)
	select {
	case <-w.done:
		return w.entry, nil
	case <-ctx.Done():
		return Entry{}, fmt.Errorf("%w: waited for %v, which did not register", overlay.ErrUnknownProcess, name)
	}
}

// wait returns the entry, or adds the caller to the waiters for it.
func (m *Registry) wait(name overlay.ProcessName) (Entry, *waiters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entry(name); e.Site != nil || e.Refused != nil {
		return e, nil, nil
	} else if e.Died {
		return Entry{}, nil, fmt.Errorf("%w: %v", overlay.ErrEnded, name)
	}
	if m.waiting >= m.limits.Waiting {
		return Entry{}, nil, fmt.Errorf("%w: %d callers wait for processes, the broker's limit", overlay.ErrOverloaded, m.waiting)
	}
	job := m.jobs[name.Job]
	if job == nil {
		job = m.newJob(name.Job)
	}
	if job.waiters == nil {
		job.waiters = make(map[uint32]*waiters)
	}
	w := job.waiters[name.Rank]
	if w == nil {
		w = &waiters{done: make(chan struct{})}
		job.waiters[name.Rank] = w
	}
	w.count++
	m.waiting++
	return Entry{}, w, nil
}

func (m *Registry) leaveQueue(name overlay.ProcessName, w *waiters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting--
	w.count--
	job := m.jobs[name.Job]
	if job == nil || w.count > 0 || job.waiters[name.Rank] != w {
		return
	}
	delete(job.waiters, name.Rank)
	m.removeEmpty(job)
}
