package broker

import (
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// counters count events since the broker's start. The zero value is ready.
type counters struct {
	resolves         atomic.Uint64 // calls that do not wait
	questions        atomic.Uint64 // within the calls
	awaits           atomic.Uint64 // calls that do
	published        atomic.Uint64 // names
	lookups          atomic.Uint64 // of names
	reports          atomic.Uint64
	expired          atomic.Uint64 // processes dropped when a lease expired
	reflectorQueries atomic.Uint64

	callBacks        [controlpb.CallBackResponse_PROMISED + 1]atomic.Uint64 // by outcome
	callBacksRefused atomic.Uint64

	faults [wire.CodeNameTaken + 1]atomic.Uint64
	byTech [overlay.MaxTechniques]signallingCounters
}

type signallingCounters struct {
	asked, connected atomic.Uint64
}

func (c *counters) fault(err error) { c.faults[wire.CodeOf(err)].Add(1) }

// CounterStatus is the counters' part of Status.
type CounterStatus struct {
	Sessions    uint64                                   `json:"sessions"`
	Resolves    uint64                                   `json:"resolves"`
	Questions   uint64                                   `json:"questions"`
	Awaits      uint64                                   `json:"awaits"`
	Reports     uint64                                   `json:"reports"`
	Published   uint64                                   `json:"published_names"`
	NameLookups uint64                                   `json:"name_lookups"`
	Expired     uint64                                   `json:"expired_processes"`
	Signalling  map[overlay.Technique]SignallingByResult `json:"signalling"`
	Faults      map[string]uint64                        `json:"faults"` // by the text of the error class
}

// SignallingByResult counts the signalling requests of one technique.
type SignallingByResult struct {
	Asked     uint64 `json:"asked"`
	Connected uint64 `json:"connected"`
}

func (c *counters) status(sessions uint64) CounterStatus {
	s := CounterStatus{
		Sessions: sessions, Resolves: c.resolves.Load(), Questions: c.questions.Load(),
		Awaits: c.awaits.Load(), Reports: c.reports.Load(), Expired: c.expired.Load(),
		Published: c.published.Load(), NameLookups: c.lookups.Load(),
		Signalling: make(map[overlay.Technique]SignallingByResult),
		Faults:     make(map[string]uint64),
	}
	for _, t := range overlay.Techniques() {
		if asked := c.byTech[t].asked.Load(); asked > 0 {
			s.Signalling[t] = SignallingByResult{asked, c.byTech[t].connected.Load()}
		}
	}
	for code := range c.faults {
		if n := c.faults[code].Load(); n > 0 {
			s.Faults[wire.Code(code).Err().Error()] += n
		}
	}
	return s
}
