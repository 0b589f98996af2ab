package submit

import (
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
)

// toNode converts a message of the reservation for a conversation. start has what Start says of the
// job besides.
func toNode(m reserve.Message, start *nodepb.Start) *nodepb.ToNode {
	switch m := m.(type) {
	case reserve.Ask:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Ask{Ask: &nodepb.Ask{
			Key: m.Key[:], Job: string(m.Job), Processes: uint32(m.Processes), Memory: uint64(m.Memory), Cpu: uint32(m.CPU), Queue: m.Queue, WaitedMs: uint64(m.Waited.Milliseconds())}}}
	case reserve.Renew:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Renew{Renew: &nodepb.Renew{Hold: holdPB(m.Hold)}}}
	case reserve.Start:
		start.Hold = holdPB(m.Hold)
		return &nodepb.ToNode{Say: &nodepb.ToNode_Start{Start: start}}
	case reserve.Commit:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Commit{Commit: &nodepb.Commit{Hold: holdPB(m.Hold)}}}
	case reserve.Cancel:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: m.Key[:]}}}
	}
	return nil
}

// fromNode converts a node's message about a reservation; nil for other messages. isOutdated reports whether the node
// lacks something that the job needs.
func fromNode(key reserve.Key, m *nodepb.ToSubmitter, isOutdated func(*nodepb.OK) bool) reserve.Message {
	switch m := m.Say.(type) {
	case *nodepb.ToSubmitter_Ok:
		lease := time.Duration(min(m.Ok.LeaseMs, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		return reserve.OK{Key: key, Hold: holdOf(m.Ok.Hold), Processes: int(min(m.Ok.Processes, math.MaxInt32)), Lease: lease, Outdated: isOutdated(m.Ok)}
	case *nodepb.ToSubmitter_Nok:
		return reserve.NOK{Key: key, Reason: reserve.Reason(m.Nok.Reason), Text: string(m.Nok.Text)}
	case *nodepb.ToSubmitter_Refused:
		return reserve.Refused{Key: key, Reason: reserve.Reason(m.Refused.Reason), Text: string(m.Refused.Text)}
	case *nodepb.ToSubmitter_Started:
		return reserve.Started{Key: key}
	case *nodepb.ToSubmitter_Committed:
		return reserve.Committed{Key: key}
	case *nodepb.ToSubmitter_Cancelled:
		return reserve.Cancelled{Key: key}
	}
	return nil
}

func holdPB(h reserve.Hold) *nodepb.Hold { return &nodepb.Hold{Boot: h.Boot, Serial: h.Serial} }

func holdOf(h *nodepb.Hold) reserve.Hold {
	return reserve.Hold{Boot: h.GetBoot(), Serial: h.GetSerial()}
}

func processesPB(all []allocate.Process) []*nodepb.Process {
	list := make([]*nodepb.Process, len(all))
	for i, p := range all {
		list[i] = &nodepb.Process{Rank: uint32(p.Rank), Copy: uint32(p.Copy)}
	}
	return list
}

func processOf(p *nodepb.Process) allocate.Process {
	return allocate.Process{Rank: int(p.GetRank()), Copy: int(p.GetCopy())}
}
