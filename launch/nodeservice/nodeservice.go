package nodeservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/launch/watch"
	"github.com/isthmus-grid/isthmus/overlay"
)

// orphanTime is how long a reservation without a conversation is kept.
const orphanTime = 30 * time.Second

// lateStart is the reason for ending a job whose Commit did not arrive before its lease expired.
const lateStart = "not all nodes started in time"

// goneTime bounds the wait for killed processes to disappear: they have 2 s to end, and the
// processes they leave behind as much again.
const goneTime = 15 * time.Second

// ErrStopping means that the node service is stopping.
var ErrStopping = fmt.Errorf("%w: the node service ends", overlay.ErrUnreachable)

// Options of a NodeService.
type Options struct {
	Node   overlay.NodeID
	Policy reserve.Policy
	Store  string // folder for staged files and running jobs; created when needed
	Limit  int64  // bytes of the staged files, and of those of one job
	Helper string // socket through which the processes reach other ranks
	Log    *slog.Logger
	Audit  *audit.Log // records jobs that start and end here; nil: none

	// Reach returns a client of another node's service, for the failure detection of jobs on several
	// nodes; see Server.Reach. nil: no failure detection.
	Reach func(ctx context.Context, node overlay.NodeID) (client nodepb.NodeServiceClient, done func(), err error)

	// Dead is called when the node of these processes of a job is considered dead, with the reason;
	// Forget, when nothing of the job runs here any more. Each may be nil.
	Dead   func(job overlay.JobID, ranks []uint32, why string)
	Forget func(job overlay.JobID)

	// Starter starts the agents of jobs; nil: they run in this process's own account.
	Starter Starter

	// Takes returns why jobs of an asker are refused, whatever the policy permits; nil: the policy
	// alone decides.
	Takes func(who Asker) error

	// EndJobs makes jobs end with Serve. Without it they run on for up to Orphan, and the next node
	// service with the same Store takes them over.
	EndJobs bool

	// Orphan is how long a reservation without a conversation is kept; 0: 30 s.
	Orphan time.Duration
}

// Asker is the caller: a user's program at a node, or a process of a job that runs there, as that
// node's helper reports it.
type Asker struct {
	Node    overlay.NodeID
	UID     uint32
	User    string     // the user's name; the number for a user without one
	Origins []string   // of a process of a job: its submitter, as USER@SITE/NODE; before that, if that was a job too, its submitter
	Address netip.Addr // invalid where the path does not reveal it
	Here    bool       // the program runs on this node service's own node
}

// maxOrigins bounds how many jobs were started by each other.
const maxOrigins = 4

// Identity returns USER@SITE/NODE, the form used in owners' rules. What a job asks for has those of its
// submitter and of the account and node that vouch for it: "alice@sitea/n1 via 1900000001@siteb/n7". So it
// is nobody's who asked by himself, and no pattern fits it.
func (a Asker) Identity() string { return strings.Join(a.identities(), " via ") }

// identities returns the parts of Identity.
func (a Asker) identities() []string {
	return append(slices.Clone(a.Origins), a.User+"@"+a.Node.Key())
}

// requester returns the caller as the owner's rules see it: all for whom it asks must be allowed.
func (a Asker) requester() reserve.Requester {
	q := reserve.Requester{Identity: a.Identity(), Site: a.Node.Site, Address: a.Address}
	if len(a.Origins) == 0 {
		return q
	}
	for _, origin := range a.Origins {
		_, node, _ := strings.Cut(origin, "@")
		site, _, _ := strings.Cut(node, "/")
		q.Parts = append(q.Parts, reserve.Requester{Identity: origin, Site: overlay.SiteID(site)})
	}
	q.Parts = append(q.Parts, reserve.Requester{Identity: a.User + "@" + a.Node.Key(), Site: a.Node.Site, Address: a.Address})
	return q
}

// NodeService is one node's node service. Make it with NewNodeService, run it with Serve; the other
// methods are safe for concurrent use and block until Serve runs.
type NodeService struct {
	opts Options
	log  *slog.Logger
	ops  chan func(time.Time)
	done chan struct{} // closed when Serve has ended
	work sync.WaitGroup

	// Used only by Serve's goroutine.
	node     *reserve.Node
	bookings map[reserve.Key]*booking
	stopping bool
	watches  map[overlay.JobID]*watch.Watch

	starter  Starter
	accounts jobAccounts // none if jobs run in this process's own
	offers   atomic.Bool // the owner's policy permits jobs

	mu    sync.Mutex // guards the fields below
	store *stage.Store
	lock  *os.File // of the store's folder
}

// NewNodeService returns a node service; run it with Serve.
func NewNodeService(opts Options) (*NodeService, error) {
	opts.Orphan = cmp.Or(opts.Orphan, orphanTime)
	if opts.Starter == nil {
		opts.Starter = &ownAccount{}
	}
	node, err := reserve.NewNode(uint64(time.Now().UnixNano()), opts.Policy)
	if err != nil {
		return nil, err
	}
	k := &NodeService{
		opts: opts, log: opts.Log, ops: make(chan func(time.Time)), done: make(chan struct{}),
		node: node, bookings: map[reserve.Key]*booking{}, watches: map[overlay.JobID]*watch.Watch{}, starter: opts.Starter,
	}
	k.offers.Store(opts.Policy.Jobs > 0)
	return k, nil
}

// Serve runs the node service until ctx ends. It first takes over the jobs of a previous node
// service. At the end it ends all reservations, and returns when nothing is left of them; but
// started jobs run on, unless EndJobs is set.
func (k *NodeService) Serve(ctx context.Context) error {
	defer k.closeStore()
	defer k.work.Wait()
	defer close(k.done)
	if _, err := os.Stat(k.opts.Store); err == nil { // a previous node service left something
		if _, err := k.openStore(); err != nil {
			k.log.Warn("the node service can take no files for now", "error", err)
		} else {
			k.adopt()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	end := ctx.Done()
	for !k.stopping || len(k.bookings) > 0 {
		timer.Reset(k.wait(time.Now()))
		select {
		case op := <-k.ops:
			op(time.Now())
		case <-timer.C:
		case <-end:
			end, k.stopping = nil, true
			for _, b := range k.bookings {
				if k.opts.EndJobs || !b.Started || b.ending {
					k.end(b, "the helper of its node was stopped", time.Now())
				} else {
					k.leave(b)
				}
			}
		}
		k.tick(time.Now())
	}
	return nil
}

// leave leaves a job to the next node service.
func (k *NodeService) leave(b *booking) {
	close(b.agent.left)
	if link := b.agent.link; link != nil {
		link.Close()
	}
	b.idle(watch.ErrHandedOver)
	delete(k.bookings, b.Ask.Key)
	k.log.Info("job left to the next helper", "job", string(b.Ask.Job), "by", b.Who.Identity(), "for", k.opts.Orphan)
}

// wait returns how long it takes until the next deadline.
func (k *NodeService) wait(now time.Time) time.Duration {
	next := k.node.Next()
	for _, b := range k.bookings {
		if !b.orphan.IsZero() && (next.IsZero() || b.orphan.Before(next)) {
			next = b.orphan
		}
	}
	if next.IsZero() {
		return time.Hour
	}
	return max(next.Sub(now), 0)
}

// tick ends reservations that have expired, were not committed in time or have had no conversation
// for too long.
func (k *NodeService) tick(now time.Time) {
	k.act(k.node.Tick(now), lateStart)
	for _, b := range k.bookings {
		if !b.orphan.IsZero() && !now.Before(b.orphan) {
			b.orphan = time.Time{}
			k.end(b, fmt.Sprintf("its submitter was not heard of for %v", k.opts.Orphan), now)
		}
	}
	for _, b := range k.bookings { // held ones expire without an action
		if !b.Started && !k.node.Has(b.Ask.Key) {
			b.finish()
		}
	}
}

// end ends a booking in any state. why is the reason that is sent to its submitter; empty if the
// submitter itself asked for the end.
func (k *NodeService) end(b *booking, why string, now time.Time) {
	if k.node.Has(b.Ask.Key) {
		_, actions := k.node.Receive(b.Who.requester(), reserve.Cancel{Key: b.Ask.Key}, now)
		k.act(actions, why)
	}
	if b.stream == nil || why == "" {
		b.release()
	} else {
		time.AfterFunc(endAckTimeout, func() { k.do(func(time.Time) { b.release() }) })
	}
	if why != "" {
		k.log.Info("reservation ended", "job", string(b.Ask.Job), "by", b.Who.Identity(), "reason", why)
	}
}

// act carries out the actions of the reservations' state machine, but for jobs that were left to the next node service;
// why is the reason for those that kill.
func (k *NodeService) act(actions []reserve.Action, why string) {
	for _, a := range actions {
		switch a := a.(type) {
		case reserve.Launch:
			if b := k.bookings[a.Key]; b != nil {
				b.launch()
			}
		case reserve.Kill:
			if b := k.bookings[a.Key]; b != nil {
				b.kill(why)
			}
		}
	}
}

// do runs f in Serve's goroutine and waits for it.
func (k *NodeService) do(f func(now time.Time)) error {
	over := make(chan struct{})
	select {
	case k.ops <- func(now time.Time) { f(now); close(over) }:
		<-over
		return nil
	case <-k.done:
		return ErrStopping
	}
}

// try is do for what can fail.
func (k *NodeService) try(f func(now time.Time) error) error {
	var err error
	ended := k.do(func(now time.Time) { err = f(now) })
	return cmp.Or(ended, err)
}

// SetPolicy changes the policy for new reservations; existing ones keep what they were granted. It
// waits for Serve to start, and fails when it has ended.
func (k *NodeService) SetPolicy(policy reserve.Policy) error {
	return k.try(func(time.Time) error {
		err := k.node.SetPolicy(policy)
		if err == nil {
			k.offers.Store(policy.Jobs > 0)
		}
		return err
	})
}

// openStore returns the store, and opens it at the first call. Only one node service at a time can
// have it open.
func (k *NodeService) openStore() (*stage.Store, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.store != nil {
		return k.store, nil
	}
	if k.opts.Store == "" {
		return nil, errors.New("this helper has no folder for the files of jobs; name one in its settings: node_service.store")
	}
	if err := makeFolder(k.opts.Store, k.mode(0o700, 0o711)); err != nil {
		return nil, fmt.Errorf("node_service.store: %w", err)
	}
	lock, err := lockFolder(k.opts.Store)
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(k.agents(), 0o700)
	if err == nil {
		err = makeFolder(k.jobs(), k.mode(0o700, 0o777|os.ModeSticky))
	}
	var store *stage.Store
	if err == nil {
		store, err = stage.Open(filepath.Join(k.opts.Store, "chunks"), k.opts.Limit)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("node_service.store: %w", err)
	}
	k.store, k.lock = store, lock
	return store, nil
}

// mode returns the mode of a folder: others if jobs have accounts of their own.
func (k *NodeService) mode(own, others os.FileMode) os.FileMode {
	if _, is := k.starter.(*ownAccount); is {
		return own
	}
	return others
}

// admit returns why an asker's jobs are refused, or nil.
func (k *NodeService) admit(who Asker) error {
	if k.opts.Takes == nil {
		return nil
	}
	return k.opts.Takes(who)
}

// jobs returns the parent of the jobs' folders.
func (k *NodeService) jobs() string { return filepath.Join(k.opts.Store, "jobs") }

func (k *NodeService) closeStore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lock != nil {
		k.lock.Close()
	}
	k.store, k.lock = nil, nil
}

// What a list of reservations has of arguments, in bytes: of one job, and of all.
const (
	maxListedArgs    = 4 << 10
	maxAllListedArgs = 128 << 10
)

// listedArgs returns the beginning of a job's arguments, within what is left for them.
func listedArgs(argv []string, left int) (some []string, size int) {
	left = min(left, maxListedArgs)
	for _, a := range argv {
		if size += len(a) + 4; size > left { // and a tag with a length
			return append(some, "..."), left
		}
		some = append(some, a)
	}
	return some, size
}

// list returns the node's reservations, the oldest first. It includes the arguments of jobs that
// who may end, and only the beginning if they are long.
func (k *NodeService) list(who Asker) (*nodepb.JobsResponse, error) {
	all, left := &nodepb.JobsResponse{}, maxAllListedArgs
	err := k.do(func(now time.Time) {
		for _, s := range k.node.List() {
			b := k.bookings[s.Key]
			if b == nil {
				continue
			}
			j := &nodepb.JobHere{
				Job: string(s.Job), State: string(s.State), By: b.Who.Node.Key(), User: strings.TrimSuffix(b.Who.Identity(), "@"+b.Who.Node.Key()), Uid: b.Who.UID,
				Processes: uint32(s.Processes), AgeMs: uint64(now.Sub(s.Since).Milliseconds()),
			}
			if !s.Until.IsZero() {
				j.LeaseMs = uint64(max(s.Until.Sub(now), 0).Milliseconds())
			}
			if b.Started {
				j.Ranks, j.Replicas, j.Places = uint32(b.Size), uint32(b.Replicas), b.live()
				if mayKill(who, b.Who) {
					some, size := listedArgs(b.Argv, left)
					j.Argv, left = nodepb.Bytes(some), left-size
				}
			}
			all.Jobs = append(all.Jobs, j)
		}
	})
	return all, control.Status(err)
}

// mayKill reports whether who may end a booking of owner: its own, and those of its own jobs.
func mayKill(who, owner Asker) bool {
	return who.Identity() == owner.Identity() || len(owner.Origins) > 0 && who.Identity() == owner.Origins[0] || who.Here && (who.UID == 0 || int(who.UID) == os.Getuid())
}

// killJob ends all reservations of a job here that who may end.
func (k *NodeService) killJob(who Asker, job overlay.JobID) (*nodepb.KillResponse, error) {
	r := &nodepb.KillResponse{}
	denied := ""
	err := k.do(func(now time.Time) {
		for _, b := range k.bookings {
			switch {
			case b.Ask.Job != job:
			case !mayKill(who, b.Who):
				denied = b.Who.Identity()
			default:
				r.Reservations++
				k.end(b, "ended by "+who.Identity(), now)
			}
		}
	})
	if err == nil && denied != "" && r.Reservations == 0 {
		err = fmt.Errorf("%w: job %s at %v is %s's", overlay.ErrForbidden, job, k.opts.Node, denied)
	}
	return r, control.Status(err)
}

// count returns the number of reservations.
func (k *NodeService) count() (n int, err error) {
	err = k.do(func(time.Time) { n = len(k.node.List()) })
	return n, err
}
