package mpilib

import (
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
)

// The environment of a rank, as `isthmus run` sets it.
const (
	EnvRank   = join.EnvRank    // ISTHMUS_RANK
	EnvSize   = join.EnvSize    // ISTHMUS_SIZE
	EnvKeyFD  = jobkey.EnvKeyFD // the descriptor to read the job's key from
	EnvJobKey = jobkey.EnvKey   // alternative for manually started processes: the key itself
	EnvGrant  = grant.Env       // the grant of the job (isthmus job grant)
	EnvHelper = join.EnvHelper  // ISTHMUS_HELPER: the helper's Unix socket
	EnvDir    = join.EnvDir     // ISTHMUS_DIR: instead of a helper: a directory for sockets of one machine
	// EnvCarriers is the number of concurrent connections of each link to another node. Without it
	// every link determines the best number itself; 1 means a single one.
	EnvCarriers = join.EnvCarriers // ISTHMUS_CARRIERS
	// EnvShared is "off" to disable shared memory for messages within a node.
	EnvShared = join.EnvShared // ISTHMUS_SHARED
	// EnvCopies is how many processes each rank has (replicas), and EnvCopy which of them this is, from 0. EnvReplicaTable is
	// which replica sends to which: "parallel" (default) or "primary". EnvSendDeterministic is "1" for a program of which no
	// message depends on the order in which others arrive.
	EnvCopies            = join.EnvCopies // ISTHMUS_COPIES
	EnvCopy              = join.EnvCopy   // ISTHMUS_COPY
	EnvReplicaTable      = join.EnvTable  // ISTHMUS_REPLICA_TABLE
	EnvSendDeterministic = join.EnvSends  // ISTHMUS_SEND_DETERMINISTIC

	EnvReport = "ISTHMUS_REPORT" // where Finalize writes the links: a file to append to, or a directory
)
