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
	EnvJobKey = jobkey.EnvKey   // in place of it, for processes that are started by hand: the key
	EnvGrant  = grant.Env       // by which the job works for a user of the grid (isthmus job grant)
	EnvHelper = join.EnvHelper  // ISTHMUS_HELPER: the helper's Unix socket
	EnvDir    = join.EnvDir     // ISTHMUS_DIR: instead of a helper: a directory for sockets of one machine
	// EnvCarriers is how many connections each link to another node has at once. Without
	// it every link finds out for itself what it gains from; 1 is one only.
	EnvCarriers = join.EnvCarriers // ISTHMUS_CARRIERS
	// EnvShared is "off" where messages within a node are not to go through shared memory.
	EnvShared = join.EnvShared   // ISTHMUS_SHARED
	EnvReport = "ISTHMUS_REPORT" // where Finalize writes the links: a file to append to, or a directory
)
