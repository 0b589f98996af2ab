package nodepb

import (
	"fmt"
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// What a submitter says.

// RequestOf converts a message of the reservation for a conversation. start has what Start says of the
// job besides.
func RequestOf(m reserve.Message, start *Start) *ToNode {
	switch m := m.(type) {
	case reserve.Ask:
		return &ToNode{Say: &ToNode_Ask{Ask: &Ask{
			Key: m.Key[:], Job: string(m.Job), Processes: uint32(m.Processes), Memory: uint64(m.Memory), Cpu: uint32(m.CPU), Queue: m.Queue, WaitedMs: uint64(m.Waited.Milliseconds())}}}
	case reserve.Renew:
		return &ToNode{Say: &ToNode_Renew{Renew: &Renew{Hold: HoldOf(m.Hold)}}}
	case reserve.Start:
		start.Hold = HoldOf(m.Hold)
		return &ToNode{Say: &ToNode_Start{Start: start}}
	case reserve.Commit:
		return &ToNode{Say: &ToNode_Commit{Commit: &Commit{Hold: HoldOf(m.Hold)}}}
	case reserve.Cancel:
		return &ToNode{Say: &ToNode_Cancel{Cancel: &Cancel{Key: m.Key[:]}}}
	}
	return nil
}

// KeyOf returns the key that a message carries.
func KeyOf(b []byte) (reserve.Key, error) {
	var k reserve.Key
	if len(b) != len(k) {
		return k, fmt.Errorf("a key of %d bytes; want %d", len(b), len(k))
	}
	return reserve.Key(b), nil
}

// MaxWaitedMs bounds how long a submitter says it has waited: a year.
const MaxWaitedMs = 365 * 24 * 3600 * 1000

// AskOf returns the validated content of an Ask.
func AskOf(m *Ask) (reserve.Ask, error) {
	key, err := KeyOf(m.Key)
	if err != nil {
		return reserve.Ask{}, err
	}
	if m.Processes > allocate.MaxProcesses || m.Memory > math.MaxInt64/allocate.MaxProcesses || m.Cpu > math.MaxInt32 {
		return reserve.Ask{}, fmt.Errorf("%d processes of %d bytes and %d/1000 of a core each: no node has as much", m.Processes, m.Memory, m.Cpu)
	}
	job := overlay.JobID(m.Job)
	if err := overlay.CheckJobID(job); err != nil {
		return reserve.Ask{}, err
	}
	return reserve.Ask{Key: key, Job: job, Processes: int(m.Processes), Memory: int64(m.Memory), CPU: int(m.Cpu),
		Queue: m.Queue, Waited: time.Duration(min(m.WaitedMs, MaxWaitedMs)) * time.Millisecond}, nil
}

// What a node answers.

// AnswerOf converts an answer of reserve.Node to its message; what is the kind of message that a
// refusal answers.
func AnswerOf(answer reserve.Message, what Refused_What) *ToSubmitter {
	switch a := answer.(type) {
	case reserve.OK:
		return &ToSubmitter{Say: &ToSubmitter_Ok{Ok: &OK{
			Hold: HoldOf(a.Hold), Processes: uint32(a.Processes), LeaseMs: uint64(a.Lease.Milliseconds()),
			Replicas: true, Spares: true, Detects: true, Newcomers: true, Wants: true,
		}}}
	case reserve.NOK:
		return &ToSubmitter{Say: &ToSubmitter_Nok{Nok: &NOK{Reason: string(a.Reason), Text: []byte(a.Text)}}}
	case reserve.Started:
		return &ToSubmitter{Say: &ToSubmitter_Started{Started: &Started{}}}
	case reserve.Committed:
		return &ToSubmitter{Say: &ToSubmitter_Committed{Committed: &Committed{}}}
	case reserve.Cancelled:
		return &ToSubmitter{Say: &ToSubmitter_Cancelled{Cancelled: &Cancelled{}}}
	case reserve.Refused:
		return RefusedOf(what, a.Reason, a.Text)
	}
	panic(fmt.Sprintf("nodepb: reserve.Node answered %T", answer))
}

// RefusedOf returns the refusal of a message of some kind.
func RefusedOf(what Refused_What, reason reserve.Reason, text string) *ToSubmitter {
	return &ToSubmitter{Say: &ToSubmitter_Refused{Refused: &Refused{Reason: string(reason), Text: []byte(text), What: what}}}
}

// MessageOf converts a node's message about a reservation; nil for other messages. isOutdated reports whether the node
// lacks something that the job needs.
func MessageOf(key reserve.Key, m *ToSubmitter, isOutdated func(*OK) bool) reserve.Message {
	switch m := m.Say.(type) {
	case *ToSubmitter_Ok:
		lease := time.Duration(min(m.Ok.LeaseMs, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		return reserve.OK{Key: key, Hold: m.Ok.Hold.Value(), Processes: int(min(m.Ok.Processes, math.MaxInt32)), Lease: lease, Outdated: isOutdated(m.Ok)}
	case *ToSubmitter_Nok:
		return reserve.NOK{Key: key, Reason: reserve.Reason(m.Nok.Reason), Text: string(m.Nok.Text)}
	case *ToSubmitter_Refused:
		return reserve.Refused{Key: key, Reason: reserve.Reason(m.Refused.Reason), Text: string(m.Refused.Text)}
	case *ToSubmitter_Started:
		return reserve.Started{Key: key}
	case *ToSubmitter_Committed:
		return reserve.Committed{Key: key}
	case *ToSubmitter_Cancelled:
		return reserve.Cancelled{Key: key}
	}
	return nil
}

// The names of what is in both.

// ProcessesOf returns processes as messages carry them.
func ProcessesOf(all []allocate.Process) []*Process {
	list := make([]*Process, len(all))
	for i, p := range all {
		list[i] = ProcessOf(p)
	}
	return list
}

// ProcessOf returns a process as messages carry it.
func ProcessOf(p allocate.Process) *Process {
	return &Process{Rank: uint32(p.Rank), Copy: uint32(p.Copy)}
}

// Value returns the process that a message carries.
func (x *Process) Value() allocate.Process {
	return allocate.Process{Rank: int(x.GetRank()), Copy: int(x.GetCopy())}
}

// HoldOf returns a hold as messages carry it.
func HoldOf(h reserve.Hold) *Hold { return &Hold{Boot: h.Boot, Serial: h.Serial} }

// Value returns the hold that a message carries.
func (x *Hold) Value() reserve.Hold { return reserve.Hold{Boot: x.GetBoot(), Serial: x.GetSerial()} }
