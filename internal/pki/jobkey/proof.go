package jobkey

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ForAuth is the key with which a process proves its membership in a job: the seed of an Ed25519
// key (RFC 8032). Only processes of the job have it.
type ForAuth [32]byte

// Public is the public half of a ForAuth. A job's id commits to it.
type Public [ed25519.PublicKeySize]byte

// ProofLen is the size of a proof in bytes: the public key and the signature.
const ProofLen = len(Public{}) + ed25519.SignatureSize

// proofLabel separates these signatures from all others of the key.
const proofLabel = "isthmus v1 registration\x00"

// Public returns the public half.
func (a ForAuth) Public() Public {
	return Public(ed25519.NewKeyFromSeed(a[:]).Public().(ed25519.PublicKey))
}

// Owns reports whether the key is that of job id.
func (p Public) Owns(id overlay.JobID) bool { return idOf(id.Name(), p) == id }

func idOf(name string, p Public) overlay.JobID {
	sum := sha256.Sum256(p[:])
	return overlay.JobID(name + "-" + hex.EncodeToString(sum[:16]))
}

// Prove signs that a process of the job, in the given generation, is at a node: ProofLen bytes,
// deterministic.
func (a ForAuth) Prove(process overlay.ProcessName, life overlay.Generation, node overlay.NodeID) []byte {
	key := ed25519.NewKeyFromSeed(a[:])
	return append(key.Public().(ed25519.PublicKey), ed25519.Sign(key, claim(process, life, node))...)
}

// claim is the signed text of a proof: the label, the job with its length, rank, generation, and
// site and node, each with its length; integers big-endian, lengths of one byte.
func claim(process overlay.ProcessName, life overlay.Generation, node overlay.NodeID) []byte {
	str8 := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	b := str8([]byte(proofLabel), string(process.Job))
	b = binary.BigEndian.AppendUint32(b, process.Rank)
	b = binary.BigEndian.AppendUint64(b, uint64(life))
	return str8(str8(b, string(node.Site)), node.Name)
}

// CheckPoint fails with overlay.ErrForbidden unless the access point proves the identity of its
// process at the node that it names: by the signature of the job's key, or, for rank 0 of the job
// of a node's service, by being at that node. Other ranks of such a job need no proof; the
// first process to claim one has it.
func CheckPoint(point overlay.AccessPoint) error {
	if owner, ok := point.Process.Job.ServiceNode(); ok {
		if point.Process.Rank == 0 && point.Node != owner {
			return fmt.Errorf("%w: %v is the node service of %v; node %v may not register it", overlay.ErrForbidden, point.Process, owner, point.Node)
		}
		return nil
	}
	if len(point.Proof) != ProofLen {
		return fmt.Errorf("%w: %v at %v comes with a proof of %d bytes, want %d; its program or a daemon on its way is older than this one", overlay.ErrForbidden, point.Process, point.Node, len(point.Proof), ProofLen)
	}
	public := Public([]byte(point.Proof[:len(Public{})]))
	if !public.Owns(point.Process.Job) {
		return fmt.Errorf("%w: what is to prove %v is signed with another job's key", overlay.ErrForbidden, point.Process)
	}
	if !ed25519.Verify(public[:], claim(point.Process, point.Generation, point.Node), []byte(point.Proof[len(public):])) {
		return fmt.Errorf("%w: the key of the job has not signed that %v is at %v in generation %d", overlay.ErrForbidden, point.Process, point.Node, point.Generation)
	}
	return nil
}
