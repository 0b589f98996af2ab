package nodeservice

import (
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
	Since     time.Time    // when it was
	Joined    []watch.Host // hosts that have joined a job with spares since it started
	Dead      []string     // hosts of such a job that its watch here has taken for dead

	program // once it was started
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
	if len(r.Replaced) > r.Spares || slices.ContainsFunc(r.Replaced, func(q uint32) bool { return int(q) >= r.first() }) {
		return r, fmt.Errorf("processes with %d spare numbers replace %v of %d", r.Spares, r.Replaced, r.first())
	}
	for _, q := range r.Processes {
		if q.Rank < 0 || q.Copy < 0 || !r.has(q) {
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

// note writes the booking's record, unless there is no agent yet, or the record is being removed or is gone: it would stay
// for ever. A job whose record cannot be written ends with this helper.
func (b *booking) note() {
	if b.ending || b.agent == nil {
		return
	}
	text, err := json.Marshal(b.record)
	file := b.k.recordFile(b.agent.name)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		b.k.log.Warn("a job will not outlive this helper", "job", string(b.Ask.Job), "error", err)
	}
}

// adopt takes over the bookings of the previous node service, which may have been killed, and
// removes files that belong to no booking. Serve's goroutine calls it first.
func (k *NodeService) adopt() {
	owned := map[string]bool{} // folders of jobs, and names of agents
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
		owned[filepath.Base(r.Folder)], owned[name] = true, true
		k.adoptOne(name, r)
	}
	folders, _ := os.ReadDir(k.jobs())
	for _, f := range folders {
		if !owned[f.Name()] {
			jobagent.RemoveAll(filepath.Join(k.jobs(), f.Name())) // fails for the files of another account, which its starter removes
		}
	}
	for _, f := range files { // sockets without a booking
		if !owned[strings.TrimSuffix(strings.TrimSuffix(f.Name(), ".new"), recordSuffix)] {
			os.Remove(filepath.Join(k.agents(), f.Name()))
		}
	}
}

// adoptOne takes over a booking. It ends a booking that had not started.
func (k *NodeService) adoptOne(name string, r record) {
	if _, own := k.starter.(*ownAccount); !own && r.Account == (Account{}) { // an earlier version wrote the record
		r.Account.UID = ownerOf(r.Folder)
	}
	b := k.newBooking(r)
	b.agent = newAgent(b)
	b.agent.name = name
	close(b.agent.ready)
	k.accounts.begin(b.Account, b.Who)
	k.bookings[b.Ask.Key] = b
	k.work.Go(func() { b.agent.serve(nil) })
	if !b.Started {
		b.finish()
		return
	}
	now := time.Now()
	b.orphan = now.Add(k.opts.Orphan)
	k.node.Adopt(b.Hold, b.Who.requester(), b.Ask, b.Processes, b.Committed, now)
	k.work.Go(b.deaths(b.absent(), absentReplica))
	if b.Committed {
		k.watchNodes(b)
	}
	k.log.Info("job taken over", "job", string(b.Ask.Job), "by", b.Who.Identity(), "processes", len(b.Processes))
}
