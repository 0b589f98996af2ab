package connhelper

import (
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Dead tells the job's processes here that those of other ranks have died with
// their node, and why that is thought: those that are registered now and those that
// will be, until Forget. A process that does not take the news in time loses its
// registration, as with any frame. It is safe for concurrent use; ranks stay the
// caller's.
func (h *Helper) Dead(job overlay.JobID, ranks []uint32, why string) {
	var news []*wire.LocalDead
	for some := range slices.Chunk(ranks, wire.MaxDead) {
		news = append(news, &wire.LocalDead{Ranks: slices.Clone(some), Text: why})
	}
	for _, p := range h.here.removeDead(job, news) {
		for _, f := range news {
			p.conn.Send(f, nil) // its reader sees what is wrong
		}
	}
}

// Forget has the dead of a job be forgotten, when all of the job is over on this
// node.
func (h *Helper) Forget(job overlay.JobID) {
	h.here.mu.Lock()
	defer h.here.mu.Unlock()
	delete(h.here.dead, job)
}

// removeDead notes the dead of a job and returns its processes here.
func (t *table) removeDead(job overlay.JobID, news []*wire.LocalDead) (of []*process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead[job] = append(t.dead[job], news...)
	for name, p := range t.processes {
		if name.Job == job {
			of = append(of, p)
		}
	}
	return of
}
