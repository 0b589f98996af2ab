package connhelper

import (
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Dead notifies the job's processes here that other ranks have died with their node, and why that
// is assumed: the processes that are registered now and those that register later, until Forget. A
// process that does not read the frames in time loses its registration, as with any frame. Dead is
// safe for concurrent use; it does not keep ranks.
func (h *Helper) Dead(job overlay.JobID, ranks []uint32, why string) {
	var news []*wire.LocalDead
	for some := range slices.Chunk(ranks, wire.MaxDead) {
		news = append(news, &wire.LocalDead{Ranks: slices.Clone(some), Text: why})
	}
	for _, p := range h.here.removeDead(job, news) {
		for _, f := range news {
			p.conn.Send(f, nil) // its reader handles errors
		}
	}
}

// Forget discards the dead of a job. Call it when the job is over on this node.
func (h *Helper) Forget(job overlay.JobID) {
	h.here.mu.Lock()
	defer h.here.mu.Unlock()
	delete(h.here.dead, job)
}

// removeDead records the dead of a job and returns its processes here.
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
