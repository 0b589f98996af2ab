package nodeservice

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/watch"
)

// record is what a node service stores on disk about a booking that has an agent, for the next node
// service. The file belongs to the node service, since an agent runs in its job's account and could
// claim any owner. The job's key is not in it.
type record struct {
	Who       Asker
	Ask       reserve.Ask
	Hold      reserve.Hold
	Folder    string // "" before the agent has reported it
	Account   Account
	Started   bool
	Committed bool
	Since     time.Time // when it was

	// Of the program, once it was started.
	Processes []place
	Size      int
	Replicas  int
	Spares    int
	Replaced  []uint32
	Argv      []string
	Outputs   []string
	Input     bool
	Hosts     []watch.Host
	Joined    []watch.Host
	Dead      []string
	Gossip    gossip.Config
}

// readRecord reads a record. What a disk has damaged is refused.
func readRecord(text []byte) (r record, err error) {
	if err := json.Unmarshal(text, &r); err != nil || !r.Started {
		return r, err
	}
	switch {
	case r.Size < 1 || r.Size > math.MaxInt32, r.Replicas < 0 || r.Replicas > 1 && r.Size > allocate.MaxProcesses/r.Replicas, r.Spares < 0 || r.Spares > allocate.MaxProcesses:
		return r, fmt.Errorf("%d ranks of %d replicas each, %d spare numbers", r.Size, r.Replicas, r.Spares)
	case len(r.Argv) == 0:
		return r, errors.New("no program")
	}
	p := &program{size: r.Size, replicas: r.Replicas, spares: r.Spares, replaced: r.Replaced}
	if len(r.Replaced) > r.Spares || slices.ContainsFunc(r.Replaced, func(q uint32) bool { return int(q) >= p.first() }) {
		return r, fmt.Errorf("processes with %d spare numbers replace %v of %d", r.Spares, r.Replaced, p.first())
	}
	for _, q := range r.Processes {
		if q.Rank < 0 || q.Copy < 0 || !p.has(q) {
			return r, fmt.Errorf("rank %d, replica %d of a job of %d ranks", q.Rank, q.Copy, r.Size)
		}
	}
	return r, nil
}

// agents returns the folder of the agents' sockets and the bookings' records.
func (k *NodeService) agents() string { return filepath.Join(k.opts.Store, "agents") }

const recordSuffix = ".json"

func (k *NodeService) recordFile(name string) string {
	return filepath.Join(k.agents(), name+recordSuffix)
}

// note writes the booking's record, unless that is being removed or is gone: it would stay for ever. Only
// Serve's goroutine calls it.
func (b *booking) note() {
	if !b.ending {
		b.writeRecord()
	}
}

// writeRecord writes the booking's record, which may not be one that ends. A job whose record cannot be
// written ends with this helper. Calls must not overlap.
func (b *booking) writeRecord() {
	b.mu.Lock()
	folder := b.folder
	b.mu.Unlock()
	r := record{Who: b.who, Ask: b.ask, Hold: b.hold, Folder: folder, Account: *cmp.Or(b.account, &Account{}), Committed: b.committed, Since: b.since, Joined: b.joined, Dead: b.dead}
	if p := b.begun.Load(); p != nil {
		r.Started, r.Processes, r.Size, r.Replicas, r.Spares, r.Replaced, r.Argv, r.Outputs, r.Input, r.Hosts, r.Gossip = true, p.processes, p.size, p.replicas, p.spares, p.replaced, p.argv, p.outputs, p.input, p.hosts, p.gossip
	}
	text, err := json.Marshal(r)
	file := b.k.recordFile(b.name)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		b.k.log.Warn("a job will not outlive this helper", "job", string(b.ask.Job), "error", err)
	}
}

// adopt takes over the bookings of the previous node service, which may have been killed, and
// removes files that belong to no booking. Serve's goroutine calls it first.
func (k *NodeService) adopt() {
	owned := map[string]bool{} // folders
	files, _ := os.ReadDir(k.agents())
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name(), recordSuffix)
		if !is {
			continue
		}
		var r record
		text, err := os.ReadFile(k.recordFile(name))
		if err == nil {
			r, err = readRecord(text)
		}
		if err != nil { // its agent ends by itself
			k.log.Warn("a job cannot be taken over", "record", f.Name(), "error", err)
			os.Remove(k.recordFile(name))
			continue
		}
		owned[filepath.Base(r.Folder)] = true
		k.adoptOne(name, r)
	}
	folders, _ := os.ReadDir(k.jobs())
	for _, f := range folders {
		if !owned[f.Name()] {
			jobagent.RemoveAll(filepath.Join(k.jobs(), f.Name())) // fails for the files of another account, which its starter removes
		}
	}
	for _, f := range files { // sockets without a booking
		if b := k.named(strings.TrimSuffix(strings.TrimSuffix(f.Name(), ".new"), recordSuffix)); b == nil {
			os.Remove(filepath.Join(k.agents(), f.Name()))
		}
	}
}

func (k *NodeService) named(name string) *booking {
	for _, b := range k.bookings {
		if b.name == name {
			return b
		}
	}
	return nil
}

// adoptOne takes over a booking. It ends a booking that had not started.
func (k *NodeService) adoptOne(name string, r record) {
	b := k.newBooking(r.Who, r.Ask)
	b.name, b.hold, b.committed, b.since, b.folder, b.joined, b.dead = name, r.Hold, r.Committed, r.Since, r.Folder, r.Joined, r.Dead
	if _, own := k.starter.(*ownAccount); !own && r.Account == (Account{}) { // an earlier version wrote the record
		r.Account.UID = ownerOf(r.Folder)
	}
	b.occupy(r.Account)
	now := time.Now()
	k.bookings[b.key] = b
	k.work.Go(func() { b.readAgent(nil) })
	if !r.Started {
		b.closed = true
		b.finish()
		return
	}
	p := &program{processes: r.Processes, size: r.Size, replicas: r.Replicas, spares: r.Spares, replaced: r.Replaced, argv: r.Argv, outputs: r.Outputs, input: r.Input, hosts: r.Hosts, gossip: r.Gossip}
	b.program = p
	b.begun.Store(p)
	b.orphan = now.Add(k.opts.Orphan)
	k.node.Adopt(b.hold, b.who.requester(), b.ask, p.processes, b.committed, now)
	b.reportAbsent(p)
	if b.committed {
		k.watchNodes(b)
	}
	k.work.Go(b.run)
	k.log.Info("job taken over", "job", string(b.ask.Job), "by", b.who.Identity(), "processes", len(p.processes))
}
