package jobkey

import (
	"crypto/sha256"

	"github.com/isthmus-grid/isthmus/overlay"
)

// gateLabel separates the secrets of gate jobs from any other digest of a name.
const gateLabel = "isthmus v1 gate job of "

// Gate returns the key of a node's gate job, through which the helpers of other nodes reach this
// node's service: its rank 0. Anyone can derive it from the node's name, so links of such a job
// authenticate nobody; the protocol on them must. Its signature proves nothing either: only the
// node itself is accepted as rank 0 (CheckPoint).
func Gate(node overlay.NodeID) Key {
	return Key{Name: overlay.GateJob(node).Name(), secret: sha256.Sum256([]byte(gateLabel + node.String())), gate: node}
}
