package gate

import "github.com/isthmus-grid/isthmus/internal/audit"

// auditJob records the start or the end of a job here. User is who launched
// it, as that one's node says: USER@SITE/NODE.
func (k *Keeper) auditJob(b *booking, what audit.Event, reason string) {
	k.opts.Audit.Append(audit.Record{
		Event: what, User: b.who.Identity(), Job: string(b.ask.Job), Reason: reason,
		Sites: []string{string(k.opts.Node.Site)}, Nodes: []string{k.opts.Node.Name},
	})
}
