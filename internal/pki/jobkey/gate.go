package jobkey

import (
	"crypto/sha256"

	"github.com/isthmus-grid/isthmus/overlay"
)

// gateLabel keeps the secrets of gate jobs apart from any other digest of a name.
const gateLabel = "isthmus v1 gate job of "

// Gate returns the key of a node's gate job, over which the helpers of other nodes
// reach this one's service: its rank 0. Everybody can derive it from the node's
// name, so links of such a job prove nothing about who is there; what runs on them
// must. Nor does its signature count: only the node itself is taken for rank 0
// (CheckPoint).
func Gate(node overlay.NodeID) Key {
	return Key{Name: overlay.GateJob(node).Name(), secret: sha256.Sum256([]byte(gateLabel + node.String())), gate: node}
}
