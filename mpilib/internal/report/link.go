package report

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
