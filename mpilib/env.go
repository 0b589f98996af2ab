package mpilib

import (
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
)

// The environment of a rank, as `isthmus run` sets it.
const (
	EnvRank = join.EnvRank // ISTHMUS_RANK
	EnvSize = join.EnvSize // ISTHMUS_SIZE
	// EnvFirst is where another launcher numbers the ranks (PMIx, PMI, Slurm), but starts only a share of them, such as those of its site: what is
	// added to its numbers. EnvSize is then the number of all.
	EnvFirst  = join.EnvFirst   // ISTHMUS_FIRST_RANK
	EnvKeyFD  = jobkey.EnvKeyFD // the descriptor to read the job's key from
	EnvJobKey = jobkey.EnvKey   // alternative for manually started processes: the key itself
	EnvGrant  = grant.Env       // the grant of the job (isthmus job grant)
	EnvHelper = join.EnvHelper  // ISTHMUS_HELPER: the helper's Unix socket
	EnvDir    = join.EnvDir     // ISTHMUS_DIR: instead of a helper: a directory for sockets of one machine
	// EnvLauncher says which launcher's numbers count: "isthmus", "pmi", "pmix" or "slurm"; "none" is a world of one. Without it the first of them does
	// that numbers this process.
	EnvLauncher = join.EnvLauncher // ISTHMUS_LAUNCHER
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
	// EnvPlaces is where ranks with replicas are, the same for all processes of the job: "paris/n1:4,lyon/n2:4", nodes in the order
	// of the ranks, and how many of them each has. Without it they count as being on one node.
	EnvPlaces = join.EnvPlaces // ISTHMUS_PLACES

	// EnvSpares is how many process numbers the job has beyond those it begins with; EnvReplacements the ranks that processes with such numbers
	// go on with (Replacements), or with replicas EnvProcess the number of one that comes in place of replica EnvCopy of EnvRank (Milestone).
	EnvSpares, EnvReplacements, EnvProcess = join.EnvSpares, join.EnvReplaced, join.EnvProcess // ISTHMUS_SPARES, _REPLACEMENTS, _PROCESS

	EnvReport = "ISTHMUS_REPORT" // where Finalize writes the links: a file to append to, or a directory
)
