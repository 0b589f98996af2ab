package nodeservice

import (
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/overlay"
)

// jobAccounts are the accounts of this node that run jobs. What a process of one asks for is asked by
// the job's submitter, whichever process it is: a job can have others of its account ask in its place.
// An account never runs jobs of two submitters at a time. Safe for concurrent use.
type jobAccounts struct {
	mu  sync.Mutex // guards the map
	all map[uint32]*accountUse
}

// accountUse is what an account runs. That of an account which only jobs have is kept when no job is
// left: a process that asks then cannot be told from one of an ended job.
type accountUse struct {
	who  Asker // the submitter
	jobs int
	only bool // nothing but jobs runs in the account
}

// begin records that an account runs a job. That of this process is anybody's.
func (a *jobAccounts) begin(account Account, who Asker) {
	if account == (Account{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[uint32]*accountUse{}
	}
	u := a.all[account.UID]
	if u == nil {
		u = &accountUse{}
		a.all[account.UID] = u
	}
	u.who, u.only = who, account.Only // of an earlier submitter's job nothing runs, or the account would not be this one's
	u.jobs++
}

// end records that a job has ended, of which nothing is left in its account.
func (a *jobAccounts) end(account Account) {
	if account == (Account{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.all[account.UID]
	if u.jobs--; u.jobs == 0 && !u.only {
		delete(a.all, account.UID)
	}
}

// caller returns who a local program asks for: its account's user, or the submitter of the job that the
// account runs.
func (a *jobAccounts) caller(node overlay.NodeID, cred local.Cred) (Asker, error) {
	own := Asker{Node: node, UID: cred.UID, User: local.Account(cred.UID), Here: true}
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.all[cred.UID]
	switch {
	case u == nil:
		return own, nil
	case u.jobs == 0:
		return own, fmt.Errorf("%w: account %d of %v is for jobs only, and none is known that runs in it now: whose process %d is cannot be told; ask from within a running job, or as a user of the node", overlay.ErrForbidden, cred.UID, node, cred.PID)
	case u.who.Node == node && len(u.who.Origins) == 0:
		own.UID, own.User = u.who.UID, u.who.User
	case len(u.who.Origins) == maxOrigins:
		return own, fmt.Errorf("%w: this is a job that was started by a job, and that one by another, over %d nodes: no more can ask for it; launch it from a node of its submitter's", overlay.ErrForbidden, maxOrigins+1)
	default:
		own.Origins = u.who.identities()
	}
	own.Here = false // it has no rights over others' jobs here, whoever submitted it
	return own, nil
}
