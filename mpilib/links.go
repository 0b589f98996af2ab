package mpilib

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/report"
	"github.com/isthmus-grid/isthmus/overlay"
)

// LinkInfo describes the link to one other process and its traffic.
type LinkInfo = report.LinkInfo

// Links describes the links set up so far, by process of the peer. Where ranks have replicas these differ, and there may be one
// to each replica of a rank.
func (w *World) Links() []LinkInfo {
	var infos []LinkInfo
	for _, p := range w.engine.Links() {
		path, rtt := p.Link.Current()
		info := LinkInfo{
			Rank: w.engine.Rank(), Replica: w.Replica(), Peer: p.Rank, PeerReplica: p.Replica, Dialled: p.Link.Dialled,
			Technique: "local", Via: path.Via.String(), Proxy: path.Proxy, Cipher: path.Cipher, Reason: path.Reason,
			SetupMS: milliseconds(path.Setup), Carriers: len(p.Link.Carriers()), RTTMS: milliseconds(rtt), Bandwidth: p.Link.Bandwidth(),
			MessagesSent: p.MessagesSent, BytesSent: p.BytesSent,
			MessagesReceived: p.MessagesReceived, BytesReceived: p.BytesReceived,
		}
		switch {
		case path.Technique.Valid():
			info.Technique = path.Technique.String()
		case p.Shared:
			info.Via = "shared memory"
		case p.Reason != nil:
			info.Reason = joined(info.Reason, "not through shared memory: "+p.Reason.Error())
		}
		if here := w.here(); here.Name != "" {
			info.Node = here.Key()
		}
		if path.Peer.Name != "" {
			info.PeerNode = path.Peer.Key()
		}
		infos = append(infos, info)
	}
	return infos
}

// here returns where this process runs, which for a replica is not Place.
func (w *World) here() overlay.NodeID {
	if w.replicated() && w.config.where == nil {
		return w.member.Here
	}
	return w.comms.node
}

func joined(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(s string) bool { return s == "" }), "; ")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
