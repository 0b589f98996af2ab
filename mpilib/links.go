package mpilib

import "github.com/isthmus-grid/isthmus/mpilib/internal/report"

// LinkInfo describes the link to one other process and its traffic.
type LinkInfo = report.LinkInfo

// Links describes the links set up so far, by process of the peer. Where ranks have replicas these differ, and there may be one
// to each replica of a rank.
func (w *World) Links() []LinkInfo {
	here := w.comms.node
	if w.replicated() && w.config.where == nil {
		here = w.member.Here
	}
	return report.Links(w.engine, w.Replica(), here)
}
