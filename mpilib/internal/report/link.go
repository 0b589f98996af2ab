package report

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

// LinkInfo describes the link to one other process and its traffic. Bytes are those of messages,
// without envelopes.
type LinkInfo struct {
	Rank             int     `json:"rank"`              // this process
	Replica          int     `json:"replica,omitempty"` // which one of its rank it is
	Node             string  `json:"node"`              // site/node where it runs; empty without a helper
	Peer             int     `json:"peer"`
	PeerReplica      int     `json:"peer_replica,omitempty"`
	PeerNode         string  `json:"peer_node"` // site/node; empty without a helper
	Dialled          bool    `json:"dialled"`   // this process asked for the link
	Technique        string  `json:"technique"` // "local" on one node
	Via              string  `json:"via"`       // whose gateway, or "shared memory"
	Proxy            string  `json:"proxy"`
	Cipher           string  `json:"cipher"` // the TLS cipher suite; empty: not encrypted
	Reason           string  `json:"reason"`
	SetupMS          float64 `json:"setup_ms"`
	Carriers         int     `json:"carriers"`  // connections that the link has now
	RTTMS            float64 `json:"rtt_ms"`    // measured last, or that of the handshake
	Bandwidth        float64 `json:"bandwidth"` // bytes a second that the link took from this process while there was more to send; 0: there never was for long enough to tell
	MessagesSent     uint64  `json:"messages_sent"`
	BytesSent        uint64  `json:"bytes_sent"`
	MessagesReceived uint64  `json:"messages_received"`
	BytesReceived    uint64  `json:"bytes_received"`
}

// Links describes the links of a process, which is the given replica of its rank and runs there.
func Links(e *engine.Engine, replica int, there overlay.NodeID) []LinkInfo {
	var infos []LinkInfo
	for _, p := range e.Links() {
		path, rtt := p.Link.Current()
		info := LinkInfo{
			Rank: e.Rank(), Replica: replica, Peer: p.Rank, PeerReplica: p.Replica, Dialled: p.Link.Dialled,
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
		if there.Name != "" {
			info.Node = there.Key()
		}
		if path.Peer.Name != "" {
			info.PeerNode = path.Peer.Key()
		}
		infos = append(infos, info)
	}
	return infos
}

func joined(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(s string) bool { return s == "" }), "; ")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
