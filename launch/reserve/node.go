package reserve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// maxUsed is how many keys a node remembers after their reservations ended; the oldest are
// forgotten first. They make refusals more precise; the number of its hold is what keeps a key from
// starting twice.
const maxUsed = 1024

// Node is the node service's side for one node: it holds the reservations, and decides when to
// launch and when to kill.
//
//	free --Ask--> held --Start--> started --Commit--> running --Exited--> free
//	               |                 |                   |
//	               | Cancel,         | Cancel,           | Cancel
//	               | lease ends      | lease ends        v
//	               v                 +--------------> ending --Exited--> free
//	              free
//
// Every state except free counts towards the owner's J.
type Node struct {
	boot   uint64
	serial uint64
	policy Policy
	held   map[Key]*reservation
	used   map[Key]tombstone
	oldest []Key // the keys of used, oldest first
	queue  queue
}

// State is the state of a reservation.
type State string

// The states of a reservation at its node.
const (
	Held    State = "held"    // booked
	Running State = "running" // committed
	starts  State = "started" // launched, but not committed
	ending  State = "ending"  // killed, but not gone yet
)

// tombstone is the record of a reservation that ended.
type tombstone struct {
	why  Reason
	hold Hold
	by   string // identity
}

type reservation struct {
	hold      Hold
	by        Requester
	ask       Ask
	state     State
	granted   int                // processes that it may start
	processes []allocate.Process // that it started
	since     time.Time          // of the Ask
	until     time.Time          // of held and started: when it ends unless renewed
	why       Reason             // of ending: why it was killed
}

// Action is an action that the node's daemon must carry out.
type Action interface{ action() }

// Launch starts the processes. When they have all ended, or failed to start, the daemon calls
// Exited.
type Launch struct {
	Key       Key
	Job       overlay.JobID
	Processes []allocate.Process
}

// Kill ends the processes of a key; then the daemon calls Exited.
type Kill struct{ Key Key }

func (Launch) action() {}
func (Kill) action()   {}

// NewNode returns a Node without reservations. boot must differ at each start of the node: the
// nanoseconds of a clock, or a random number.
func NewNode(boot uint64, policy Policy) (*Node, error) {
	if err := policy.Check(); err != nil {
		return nil, err
	}
	return &Node{boot: boot, policy: policy.withDefaults(), held: map[Key]*reservation{}, used: map[Key]tombstone{}}, nil
}

// SetPolicy changes the policy for new reservations; existing ones keep what they were granted.
func (n *Node) SetPolicy(policy Policy) error {
	if err := policy.Check(); err != nil {
		return err
	}
	n.policy = policy.withDefaults()
	return nil
}

// Adopt registers a job that is running already, after a restart of the daemon, with its previous
// hold: its submitter continues undisturbed. A job that was not committed gets a new lease.
func (n *Node) Adopt(hold Hold, by Requester, ask Ask, processes []allocate.Process, committed bool, now time.Time) {
	r := &reservation{hold: hold, by: by, ask: ask, state: Running, granted: len(processes), processes: slices.Clone(processes), since: now}
	if !committed {
		r.state, r.until = starts, now.Add(n.policy.Lease)
	}
	n.held[ask.Key] = r
}

func (n *Node) next() Hold {
	n.serial++
	return Hold{n.boot, n.serial}
}

// Receive handles a message and returns its answer and the actions to carry out. A message that is
// not addressed to nodes has no answer.
func (n *Node) Receive(from Requester, m Message, now time.Time) (Message, []Action) {
	actions := n.Tick(now)
	var answer Message
	var more []Action
	switch m := m.(type) {
	case Ask:
		answer = n.ask(from, m, now)
	case Renew:
		answer = n.renew(from, m, now)
	case Start:
		answer, more = n.start(from, m, now)
	case Commit:
		answer = n.commit(from, m)
	case Cancel:
		answer, more = n.cancel(from, m)
	}
	return answer, append(actions, more...)
}

// ask handles step 4.
func (n *Node) ask(from Requester, m Ask, now time.Time) Message {
	nok := func(reason Reason, format string, args ...any) Message {
		return NOK{m.Key, reason, fmt.Sprintf(format, args...)}
	}
	if r := n.held[m.Key]; r != nil {
		if r.by.Identity != from.Identity || r.state != Held || r.ask != m {
			return nok(Used, "the key is in use")
		}
		return n.ok(r, now)
	}
	if t, known := n.used[m.Key]; known {
		return nok(t.why, "the key was used before")
	}
	allowed, why := n.policy.Allows(from)
	switch {
	case m.Key == Key{} || m.Processes < 1 || m.Memory < 0 || m.CPU < 0:
		return nok(Invalid, "the request has no key, asks for no process, or for negative memory or CPU")
	case n.policy.Jobs == 0:
		return nok(Denied, "the node's owner offers nothing (offer.jobs in its helper's settings is 0); what permits site %s: offer: {jobs: 1, allow: [{site: %s}]}", from.Site, from.Site)
	case !allowed:
		return nok(Denied, "%s", why)
	}
	granted, reason, text := n.admit(from, m, now)
	if granted < 1 {
		return nok(reason, "%s", text)
	}
	r := &reservation{hold: n.next(), by: from, ask: m, state: Held, granted: granted, since: now, until: now.Add(n.policy.Lease)}
	n.held[m.Key] = r
	return n.ok(r, now)
}

// admit returns how many processes of m are accepted now; if none, why.
func (n *Node) admit(from Requester, m Ask, now time.Time) (granted int, reason Reason, why string) {
	n.queue.heard(from.Identity, m, now)
	granted, reason, why = n.room(m, nil)
	if granted < 1 {
		n.queue.full()
		return 0, reason, why
	}
	held, booked := n.reservations()
	fits := func(a Ask) bool {
		granted, _, _ := n.room(a, nil)
		return granted > 0 && !booked[a.Key]
	}
	if first := n.queue.before(from.Identity, m, n.policy.Jobs-len(n.held), held, fits, now); len(first) > 0 {
		if granted, _, _ = n.room(m, first); granted < 1 {
			return 0, Busy, "jobs that have waited longer, or of users who have fewer here, come first"
		}
	}
	return granted, "", ""
}

// reservations returns how many reservations each identity has, and their keys.
func (n *Node) reservations() (held map[string]int, booked map[Key]bool) {
	held, booked = make(map[string]int, len(n.held)), make(map[Key]bool, len(n.held))
	for key, r := range n.held {
		held[r.by.Identity]++
		booked[key] = true
	}
	return held, booked
}

// room returns how many processes of m there is room for, besides what others have and what is kept for
// the submissions in first; if there is none, why.
func (n *Node) room(m Ask, first []*waiter) (granted int, reason Reason, why string) {
	granted = min(n.policy.Processes, m.Processes)
	if len(n.held)+len(first)+1 > n.policy.Jobs {
		return 0, Busy, fmt.Sprintf("%d jobs are held or run, the owner allows %d", len(n.held), n.policy.Jobs)
	}
	if granted < 1 {
		return 0, Busy, fmt.Sprintf("the owner allows %d processes", n.policy.Processes)
	}
	var memory int64
	cpu := 0
	take := func(a Ask, processes int) {
		memory += int64(processes) * a.Memory
		cpu += processes * a.CPU
	}
	for _, r := range n.held {
		take(r.ask, r.size())
	}
	for _, w := range first {
		take(w.ask, min(n.policy.Processes, w.ask.Processes))
	}
	const short = "what other jobs leave of it is too little for one process"
	if n.policy.Memory > 0 && m.Memory > 0 {
		if granted = int(min(int64(granted), (n.policy.Memory-memory)/m.Memory)); granted < 1 {
			return 0, Memory, short
		}
	}
	if n.policy.CPU > 0 && m.CPU > 0 {
		if granted = min(granted, (n.policy.CPU-cpu)/m.CPU); granted < 1 {
			return 0, CPU, short
		}
	}
	return granted, "", ""
}

// size returns how many processes the reservation occupies.
func (r *reservation) size() int {
	if r.state == Held {
		return r.granted
	}
	return len(r.processes)
}

func (n *Node) ok(r *reservation, now time.Time) Message {
	return OK{Key: r.ask.Key, Hold: r.hold, Processes: r.granted, Lease: r.until.Sub(now)}
}

// find returns the reservation of a message, or the refusal.
func (n *Node) find(from Requester, key Key, hold Hold) (*reservation, Message) {
	r := n.held[key]
	if r == nil {
		reason := cmp.Or(n.used[key].why, Unknown)
		return nil, Refused{key, reason, "there is no reservation with this key (any more)"}
	}
	if r.by.Identity != from.Identity || r.hold != hold {
		return nil, Refused{key, Unknown, "this reservation is another one's"}
	}
	return r, nil
}

func (n *Node) renew(from Requester, m Renew, now time.Time) Message {
	if n.finish(from, m.Key, m.Hold) {
		return Started{m.Key}
	}
	r, refused := n.find(from, m.Key, m.Hold)
	switch {
	case refused != nil:
		return refused
	case r.state == ending:
		return Refused{m.Key, r.why, "the reservation has ended"}
	case r.state == Running:
		return Started{m.Key} // there is no lease any more
	}
	n.prolong(r, now)
	if r.state == starts {
		return Started{m.Key} // other nodes have not started yet
	}
	return n.ok(r, now)
}

// prolong restarts the lease of a held or started reservation, up to the longest time that it may
// be renewed.
func (n *Node) prolong(r *reservation, now time.Time) {
	r.until = now.Add(n.policy.Lease)
	if longest := r.since.Add(n.policy.Longest); r.until.After(longest) {
		r.until = longest
	}
}

// start handles steps 7 and 8.
func (n *Node) start(from Requester, m Start, now time.Time) (Message, []Action) {
	if n.finish(from, m.Key, m.Hold) {
		return Started{m.Key}, nil
	}
	r, refused := n.find(from, m.Key, m.Hold)
	if refused != nil {
		return refused, nil
	}
	switch {
	case r.state == ending:
		return Refused{m.Key, r.why, "the reservation has ended"}, nil
	case r.state != Held && slices.Equal(r.processes, m.Processes):
		if r.state == starts {
			n.prolong(r, now) // the submitter has not received the answer yet
		}
		return Started{m.Key}, nil // the same answer again
	case r.state != Held:
		return Refused{m.Key, Used, "the key is used"}, nil
	case len(m.Processes) < 1 || len(m.Processes) > r.granted:
		return Refused{m.Key, TooMany, fmt.Sprintf("%d processes are to start, 1 to %d are held", len(m.Processes), r.granted)}, nil
	}
	r.state, r.processes, r.until = starts, slices.Clone(m.Processes), now.Add(n.policy.Lease)
	n.queue.started(from.Identity, r.ask.Job)
	return Started{m.Key}, []Action{Launch{m.Key, r.ask.Job, slices.Clone(m.Processes)}}
}

// finish reports whether the processes of this reservation ran and ended by themselves. A short job
// may be done before its submitter receives Started; its repeated Start and Commit are then
// answered as if it were running.
func (n *Node) finish(from Requester, key Key, hold Hold) bool {
	return n.used[key] == tombstone{Done, hold, from.Identity}
}

func (n *Node) commit(from Requester, m Commit) Message {
	if n.finish(from, m.Key, m.Hold) {
		return Committed{m.Key}
	}
	r, refused := n.find(from, m.Key, m.Hold)
	switch {
	case refused != nil:
		return refused
	case r.state == Running:
		return Committed{m.Key}
	case r.state == ending:
		return Refused{m.Key, r.why, "the reservation has ended"}
	case r.state != starts:
		return Refused{m.Key, Invalid, "nothing was started that could be committed"}
	}
	r.state, r.until = Running, time.Time{}
	return Committed{m.Key}
}

// cancel also marks an unknown key as used: its Ask may still arrive.
func (n *Node) cancel(from Requester, m Cancel) (Message, []Action) {
	r := n.held[m.Key]
	switch {
	case r == nil:
		if _, known := n.used[m.Key]; !known {
			n.use(m.Key, tombstone{why: Used})
		}
		return Cancelled(m), nil
	case r.by.Identity != from.Identity:
		return Refused{m.Key, Unknown, "this reservation is another one's"}, nil
	}
	return Cancelled(m), n.end(r, Used)
}

// end ends a reservation early.
func (n *Node) end(r *reservation, why Reason) []Action {
	switch r.state {
	case Held:
		delete(n.held, r.ask.Key)
		n.use(r.ask.Key, tombstone{why, r.hold, r.by.Identity})
		n.queue.gaveBack(r.by.Identity, r.ask.Job)
	case starts, Running:
		r.state, r.until, r.why = ending, time.Time{}, why
		return []Action{Kill{r.ask.Key}}
	}
	return nil
}

// use records what became of a key.
func (n *Node) use(key Key, t tombstone) {
	if _, known := n.used[key]; !known {
		n.oldest = append(n.oldest, key)
	}
	n.used[key] = t
	if len(n.oldest) > maxUsed {
		delete(n.used, n.oldest[0])
		n.oldest = slices.Delete(n.oldest, 0, 1)
	}
}

// Exited reports that the processes of a key are gone.
func (n *Node) Exited(key Key) {
	if r := n.held[key]; r != nil && r.state != Held {
		delete(n.held, key)
		n.use(key, tombstone{cmp.Or(r.why, Done), r.hold, r.by.Identity})
	}
}

// Tick ends reservations that were not renewed or committed in time. Receive does so, too.
func (n *Node) Tick(now time.Time) []Action {
	var over []*reservation
	for _, r := range n.held {
		if !r.until.IsZero() && !now.Before(r.until) {
			over = append(over, r)
		}
	}
	slices.SortFunc(over, byHold)
	var actions []Action
	for _, r := range over {
		actions = append(actions, n.end(r, Expired)...)
	}
	return actions
}

// Next returns when to call Tick; zero: no deadline.
func (n *Node) Next() time.Time {
	var next time.Time
	for _, r := range n.held {
		if !r.until.IsZero() && (next.IsZero() || r.until.Before(next)) {
			next = r.until
		}
	}
	return next
}

// Status is one reservation for display and metrics.
type Status struct {
	Key       Key
	Job       overlay.JobID
	By        Requester
	State     State
	Processes int       // held or running
	Since     time.Time // time of the Ask
	Until     time.Time // when it ends unless renewed; zero: never
}

// List returns all reservations, the oldest first.
func (n *Node) List() []Status {
	var all []Status
	for _, r := range slices.SortedFunc(maps.Values(n.held), byHold) {
		all = append(all, Status{r.ask.Key, r.ask.Job, r.by, r.state, r.size(), r.since, r.until})
	}
	return all
}

// Has reports whether there is a reservation with the key.
func (n *Node) Has(key Key) bool { return n.held[key] != nil }

func byHold(a, b *reservation) int { return cmp.Compare(a.hold.Serial, b.hold.Serial) }
