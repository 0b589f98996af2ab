package connhelper

import (
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/overlay"
)

// record returns an audit record about a process of this node.
func (h *Helper) record(p *process) audit.Record {
	return audit.Record{
		User: p.principal.User, Project: p.principal.Project, Job: string(p.name.Job), Ranks: []uint32{p.name.Rank},
		Sites: []string{string(h.node.Site)}, Nodes: []string{h.node.Name}, Peer: p.who(),
	}
}

// who returns the account of a process, as audit records have it.
func (p *process) who() string { return fmt.Sprintf("uid %d", p.uid) }

// auditProcess records that a process joined or left.
func (h *Helper) auditProcess(p *process, what string) {
	r := h.record(p)
	r.Event, r.Reason = audit.Process, what
	h.opts.Audit.Append(r)
}

// auditConnected records that a process got a connection. Its peer is known; how much it moves is
// not, because the process holds the socket.
func (h *Helper) auditConnected(p *process, rank uint32, path overlay.Path) {
	r := h.record(p)
	r.Event, r.Ranks = audit.LinkStart, append(r.Ranks, rank)
	r.Sites, r.Nodes = append(r.Sites, string(path.Peer.Site)), append(r.Nodes, path.Peer.Name)
	r.Relay, r.Reason = path.Proxy, path.Reason
	if path.Technique != 0 {
		r.Technique = path.Technique.String()
	}
	h.opts.Audit.Append(r)
}

// auditProcessRefused records a program that was refused at the helper's socket; p is nil when it
// did not identify itself.
func (h *Helper) auditProcessRefused(conn *local.Conn, p *process, err error) {
	r := audit.Record{Sites: []string{string(h.node.Site)}, Nodes: []string{h.node.Name}, Peer: "a process of this node"}
	if cred, credErr := conn.PeerCred(); credErr == nil {
		r.Peer = fmt.Sprintf("uid %d pid %d", cred.UID, cred.PID)
	}
	if p != nil {
		r.Job, r.Ranks = string(p.name.Job), []uint32{p.name.Rank}
	}
	r.Event, r.Rule, r.Reason = audit.Refusal, "process", err.Error()
	h.opts.Audit.Append(r)
}

// auditOverBudget records that a process requested more than its account may have at a time.
func (h *Helper) auditOverBudget(p *process, err error) {
	r := h.record(p)
	r.Event, r.Rule, r.Reason = audit.Refusal, "requests", err.Error()
	h.opts.Audit.Append(r)
}

// auditDenied records an address that this helper was asked to dial and did not.
func (h *Helper) auditDenied(j journey, err error) {
	h.opts.Audit.Append(audit.Record{
		Event: audit.Refusal, Job: string(j.target.Job), Ranks: []uint32{j.asker.Rank, j.target.Rank}, Rule: "address", Reason: err.Error(),
		Sites: []string{string(h.node.Site)}, Nodes: []string{h.node.Name},
	})
}

// auditRefusal records a connection to the data port that was refused.
func (h *Helper) auditRefusal(c net.Conn, rule string, err error) {
	h.opts.Audit.Append(audit.Record{
		Event: audit.Refusal, Peer: c.RemoteAddr().String(), Rule: rule, Reason: err.Error(),
		Sites: []string{string(h.node.Site)}, Nodes: []string{h.node.Name},
	})
}
