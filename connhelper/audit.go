package connhelper

import (
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/connhelper/traffic"
	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/overlay"
)

// auditor writes the helper's audit log. It has no state of its own.
type auditor struct {
	log  *audit.Log // nil: nothing is written
	node overlay.NodeID
}

// record returns an audit record about a process of this node.
func (a auditor) record(p *process) audit.Record {
	return audit.Record{
		User: p.principal.User, Project: p.principal.Project, Job: string(p.name.Job), Ranks: []uint32{p.name.Rank},
		Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name}, Peer: p.who(),
	}
}

// who returns the account of a process, as audit records have it.
func (p *process) who() string { return fmt.Sprintf("uid %d", p.uid) }

// process records that a process joined or left.
func (a auditor) process(p *process, what string) {
	r := a.record(p)
	r.Event, r.Reason = audit.Process, what
	a.log.Append(r)
}

// connected records that a process got a connection. Its peer is known; how much it moves is
// not, because the process holds the socket.
func (a auditor) connected(p *process, rank uint32, path overlay.Path) {
	r := a.record(p)
	r.Event, r.Ranks = audit.LinkStart, append(r.Ranks, rank)
	r.Sites, r.Nodes = append(r.Sites, string(path.Peer.Site)), append(r.Nodes, path.Peer.Name)
	r.Relay, r.Reason = path.Proxy, path.Reason
	if path.Technique != 0 {
		r.Technique = path.Technique.String()
	}
	a.log.Append(r)
}

// processRefused records a program that was refused at the helper's socket; p is nil when it
// did not identify itself.
func (a auditor) processRefused(conn *local.Conn, p *process, err error) {
	r := audit.Record{Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name}, Peer: "a process of this node"}
	if cred, credErr := conn.PeerCred(); credErr == nil {
		r.Peer = fmt.Sprintf("uid %d pid %d", cred.UID, cred.PID)
	}
	if p != nil {
		r.Job, r.Ranks = string(p.name.Job), []uint32{p.name.Rank}
	}
	r.Event, r.Rule, r.Reason = audit.Refusal, "process", err.Error()
	a.log.Append(r)
}

// overBudget records that a process requested more than its account may have at a time.
func (a auditor) overBudget(p *process, err error) {
	r := a.record(p)
	r.Event, r.Rule, r.Reason = audit.Refusal, "requests", err.Error()
	a.log.Append(r)
}

// denied records an address that this helper was asked to dial and did not.
func (a auditor) denied(j journey, err error) {
	a.log.Append(audit.Record{
		Event: audit.Refusal, Job: string(j.target.Job), Ranks: []uint32{j.asker.Rank, j.target.Rank}, Rule: "address", Reason: err.Error(),
		Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name},
	})
}

// refusal records a connection to the data port that was refused.
func (a auditor) refusal(c net.Conn, rule string, err error) {
	a.log.Append(audit.Record{
		Event: audit.Refusal, Peer: c.RemoteAddr().String(), Rule: rule, Reason: err.Error(),
		Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name},
	})
}

// silent records a connection to the socket that was closed because its account, or all
// accounts together, have too many without a hello.
func (a auditor) silent(who uid, err error) {
	a.log.Append(audit.Record{
		Event: audit.Refusal, Peer: who.String(), Rule: "silent-processes", Reason: err.Error(),
		Sites: []string{string(a.node.Site)}, Nodes: []string{a.node.Name},
	})
}

// ended records the end of a link that no daemon carried.
func (a auditor) ended(p *process, e traffic.Ended) {
	a.log.Append(audit.EndOf(account.OwnWord(p.name, a.node, p.principal, p.who(), e.Traffic, e.Unsaid)))
}
