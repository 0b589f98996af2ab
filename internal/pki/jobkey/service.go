package jobkey

import (
	"crypto/sha256"

	"github.com/isthmus-grid/isthmus/overlay"
)

// serviceLabel separates the secrets of service jobs from any other digest of a name.
const serviceLabel = "isthmus v1 node service of "

// ServiceKey returns the key of a node's service job, through which the helpers of other nodes
// reach this node's service: its rank 0. Anyone can derive it from the node's name, so links of
// such a job authenticate no peer; the protocol on them must. Its signature proves nothing either:
// only the node itself is accepted as rank 0 (CheckPoint).
func ServiceKey(node overlay.NodeID) Key {
	return Key{Name: overlay.ServiceJob(node).Name(), secret: sha256.Sum256([]byte(serviceLabel + node.Key())), service: node}
}
