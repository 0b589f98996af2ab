package submit

import (
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
)

// toNode converts a message of the reservation for a conversation. start has what Start says of the
// job besides.
func toNode(m reserve.Message, start *gatepb.Start) *gatepb.ToNode {
	switch m := m.(type) {
	case reserve.Ask:
		return &gatepb.ToNode{Say: &gatepb.ToNode_Ask{Ask: &gatepb.Ask{
			Key: m.Key[:], Job: string(m.Job), Processes: uint32(m.Processes), Memory: uint64(m.Memory), Cpu: uint32(m.CPU), Queue: m.Queue, WaitedMs: uint64(m.Waited.Milliseconds())}}}
	case reserve.Renew:
		return &gatepb.ToNode{Say: &gatepb.ToNode_Renew{Renew: &gatepb.Renew{Hold: holdPB(m.Hold)}}}
	case reserve.Start:
		start.Hold = holdPB(m.Hold)
		return &gatepb.ToNode{Say: &gatepb.ToNode_Start{Start: start}}
	case reserve.Commit:
		return &gatepb.ToNode{Say: &gatepb.ToNode_Commit{Commit: &gatepb.Commit{Hold: holdPB(m.Hold)}}}
	case reserve.Cancel:
		return &gatepb.ToNode{Say: &gatepb.ToNode_Cancel{Cancel: &gatepb.Cancel{Key: m.Key[:]}}}
	}
	return nil
}

// fromNode converts a node's message about a reservation; nil for other messages. isOutdated reports whether the node
// lacks something that the job needs.
func fromNode(key reserve.Key, m *gatepb.ToSubmitter, isOutdated func(*gatepb.OK) bool) reserve.Message {
	switch m := m.Say.(type) {
	case *gatepb.ToSubmitter_Ok:
		lease := time.Duration(min(m.Ok.LeaseMs, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		return reserve.OK{Key: key, Hold: holdOf(m.Ok.Hold), Processes: int(min(m.Ok.Processes, math.MaxInt32)), Lease: lease, Outdated: isOutdated(m.Ok)}
	case *gatepb.ToSubmitter_Nok:
		return reserve.NOK{Key: key, Reason: reserve.Reason(m.Nok.Reason), Text: string(m.Nok.Text)}
	case *gatepb.ToSubmitter_Refused:
		return reserve.Refused{Key: key, Reason: reserve.Reason(m.Refused.Reason), Text: string(m.Refused.Text)}
	case *gatepb.ToSubmitter_Started:
		return reserve.Started{Key: key}
	case *gatepb.ToSubmitter_Committed:
		return reserve.Committed{Key: key}
	case *gatepb.ToSubmitter_Cancelled:
		return reserve.Cancelled{Key: key}
	}
	return nil
}

func holdPB(h reserve.Hold) *gatepb.Hold { return &gatepb.Hold{Boot: h.Boot, Serial: h.Serial} }

func holdOf(h *gatepb.Hold) reserve.Hold {
	return reserve.Hold{Boot: h.GetBoot(), Serial: h.GetSerial()}
}

func processesPB(all []allocate.Process) []*gatepb.Process {
	list := make([]*gatepb.Process, len(all))
	for i, p := range all {
		list[i] = &gatepb.Process{Rank: uint32(p.Rank), Copy: uint32(p.Copy)}
	}
	return list
}

func processOf(p *gatepb.Process) allocate.Process {
	return allocate.Process{Rank: int(p.GetRank()), Copy: int(p.GetCopy())}
}
