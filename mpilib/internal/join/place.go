// Package join makes a process a member of a job: it reads from the environment the process's rank
// and how the others are reached, opens the connector to them, and serves a mesh of links until the
// process leaves.
//
// It knows neither messages nor communicators, and contacts daemons only through package local's
// client. What it opens is in a Member, until Leave.
package join

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/isthmus-grid/isthmus/internal/job/places"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The environment of a rank; package mpilib describes each variable.
const (
	EnvRank     = "ISTHMUS_RANK"
	EnvSize     = "ISTHMUS_SIZE"
	EnvFirst    = "ISTHMUS_FIRST_RANK"
	EnvHelper   = "ISTHMUS_HELPER"
	EnvDir      = "ISTHMUS_DIR"
	EnvCarriers = "ISTHMUS_CARRIERS"
	EnvShared   = "ISTHMUS_SHARED"
	EnvCopy     = "ISTHMUS_COPY"
	EnvCopies   = "ISTHMUS_COPIES"
	EnvTable    = "ISTHMUS_REPLICA_TABLE"
	EnvSends    = "ISTHMUS_SEND_DETERMINISTIC"
	EnvPlaces   = places.Env
	EnvSpares   = "ISTHMUS_SPARES"
	EnvReplaced = "ISTHMUS_REPLACEMENTS"
	EnvProcess  = "ISTHMUS_PROCESS"
	EnvLauncher = "ISTHMUS_LAUNCHER"
)

// Place is what the environment says about this process. The zero Place with size 1 is a world of
// one.
type Place struct {
	Rank, Size  int
	Key         jobkey.Key
	Helper, Dir string
	Carriers    int    // of a link; 0: the link chooses
	Unshared    bool   // no shared memory
	Grant       []byte // of the job; may be empty

	Replica, Replicas int // of the rank; 0, 0: it has no other process
	Table             replica.Table
	SendDeterministic bool

	// Places has the node of each rank with replicas: that of its replica 0 at the start of the job. nil: they are unknown. All
	// processes of the job have the same, so that all replicas of a rank do the same by it.
	Places []overlay.NodeID

	// Newcomers is how many process numbers a job with replicas has beyond those that it begins with, and Number is that of
	// this process if it is one of them: it comes to take the place of Replica of Rank.
	Newcomers, Number int
	Marks             string // the secret of marks in the output (package marks); may be empty

	// Exchange is how the processes get Key, and Dir unless there is a Helper, from rank 0, as another launcher has
	// started them without. See Complete.
	Exchange Exchange
	OpenPMIx func(context.Context) (Manager, error) // by PMIx's client library, which is in C; nil: this program has none
	manager  Manager                                // by which Complete has got it; nil: none

	// Spares is how many process numbers the job has beyond Size. Those of Replacements were given to
	// processes so far: number Size+i goes on with rank Replacements[i], which was lost. A Rank from Size on
	// is the number of such a process. Only without replicas.
	Spares       int
	Replacements []int
}

// Process returns this process's number in the job, and Processes how many the job has: that by which links know them.
func (p *Place) Process() int { return max(p.Replica*p.Size+p.Rank, p.Number) }

// Processes is described at Process.
func (p *Place) Processes() int { return p.Size*max(1, p.Replicas) + p.Spares + p.Newcomers }

// maxReplicas bounds the processes of a rank.
const maxReplicas = 16

// replicas reads how many processes the rank has, and which this is. Without EnvCopies it is the only one: copies
// that are independent of each other have EnvCopy alone.
func (p *Place) replicas(lookup func(string) (string, bool)) error {
	text, ok := lookup(EnvCopies)
	if !ok || text == "" || text == "1" {
		return nil
	}
	which, _ := lookup(EnvCopy)
	copies, err := strconv.Atoi(text)
	copy, copyErr := strconv.Atoi(which)
	if err != nil || copyErr != nil || copies < 1 || copies > maxReplicas || copy < 0 || copy >= copies {
		return fmt.Errorf("mpilib: %w: %s=%q of %s=%q: want a replica from 0 to one less than their number, which is at most %d", mpi.ErrEnv, EnvCopy, which, EnvCopies, text, maxReplicas)
	}
	p.Replica, p.Replicas = copy, copies
	switch table, _ := lookup(EnvTable); table {
	case "", replica.Parallel.String():
	case replica.Primary.String():
		p.Table = replica.Primary
	default:
		return fmt.Errorf("mpilib: %w: %s=%q: want %v or %v", mpi.ErrEnv, EnvTable, table, replica.Parallel, replica.Primary)
	}
	switch sends, _ := lookup(EnvSends); sends {
	case "", "0":
	case "1":
		p.SendDeterministic = true
	default:
		return fmt.Errorf("mpilib: %w: %s=%q: want 0 or 1", mpi.ErrEnv, EnvSends, sends)
	}
	if line, _ := lookup(EnvPlaces); line != "" {
		if p.Places, err = places.Parse(line, p.Size); err != nil {
			return fmt.Errorf("mpilib: %w: %s: %w", mpi.ErrEnv, EnvPlaces, err)
		}
	}
	return nil
}

// EndExpelled ends the process as a signal would, which the launcher takes for the loss of this replica. An exit status
// would count as the program's own and end the job.
func EndExpelled() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
		select {} // until the signal arrives
	}
	os.Exit(128 + 9)
}

// rankSources lists the launchers that may have numbered the processes, in order of precedence: the
// innermost, which started last, comes first. EnvLauncher names one by its word.
var rankSources = []struct {
	name, word string
	rank, size []string // the first that is set counts
}{
	{"isthmus run", "isthmus", []string{EnvRank}, []string{EnvSize}},
	{"PMI", "pmi", []string{"PMI_RANK"}, []string{"PMI_SIZE"}},
	{"PMIx", "pmix", []string{"PMIX_RANK"}, []string{"PMIX_SIZE", "OMPI_COMM_WORLD_SIZE", EnvSize, "SLURM_NTASKS"}},
	{"Slurm", "slurm", []string{"SLURM_PROCID"}, []string{"SLURM_NTASKS", "SLURM_NPROCS"}},
}

// noLauncher is the word for a world of one, whatever has started the process.
const noLauncher = "none"

// forcedLauncher reads EnvLauncher; "" if the first of rankSources is to count that numbers this process.
func forcedLauncher(lookup func(string) (string, bool)) (word string, err error) {
	word, _ = lookup(EnvLauncher)
	if word == "" || word == noLauncher {
		return word, nil
	}
	known := ""
	for _, source := range rankSources {
		if source.word == word {
			return word, nil
		}
		known += source.word + ", "
	}
	return "", fmt.Errorf("mpilib: %w: %s=%q: want one of %s%s", mpi.ErrEnv, EnvLauncher, word, known, noLauncher)
}

// FromEnvironment reads the environment through lookup. It is a pure function of it.
func FromEnvironment(lookup func(string) (string, bool)) (Place, error) {
	p := Place{Size: 1}
	if err := p.spares(lookup); err != nil {
		return Place{}, err
	}
	who, err := p.number(lookup)
	if err != nil {
		return Place{}, err
	}
	if err := p.replicas(lookup); err != nil {
		return Place{}, err
	}
	if err := p.newcomers(lookup); err != nil {
		return Place{}, err
	}
	if err := p.checkSpares(); err != nil {
		return Place{}, err
	}
	p.Helper, _ = lookup(EnvHelper)
	p.Dir, _ = lookup(EnvDir)
	if p.Helper != "" && p.Dir != "" {
		return Place{}, fmt.Errorf("mpilib: %w: both %s (%s) and %s (%s) are set; unset one", mpi.ErrEnv, EnvHelper, p.Helper, EnvDir, p.Dir)
	}
	if text, ok := lookup(grant.Env); ok && text != "" {
		if p.Grant, err = grant.FromText(text); err != nil {
			return Place{}, fmt.Errorf("mpilib: %w: %s: %w", mpi.ErrEnv, grant.Env, err)
		}
	}
	key, ok, keyErr := keyFrom(lookup)
	if p.Processes() == 1 {
		p.Key = key // for the names it publishes
		return p, nil
	}
	if !ok && p.Dir == "" {
		p.Exchange = exchangeOf(who, lookup)
	}
	if p.Exchange == (Exchange{}) && (!ok || p.Helper == "" && p.Dir == "") {
		return Place{}, fmt.Errorf("mpilib: %w: %s numbers this process %d of %d, but to reach the others it needs %s and %s or %s; "+
			"start it with `isthmus run`, export them to every rank (`isthmus job new` makes a key), or set %s=%s for a world of one",
			mpi.ErrEnv, who, p.Rank, p.Size, jobkey.EnvKey, EnvHelper, EnvDir, EnvLauncher, noLauncher)
	}
	if p.Key = key; keyErr != nil {
		return Place{}, fmt.Errorf("mpilib: %w: %w", mpi.ErrEnv, keyErr)
	}
	if text, ok := lookup(EnvCarriers); ok && text != "" {
		if p.Carriers, err = strconv.Atoi(text); err != nil || p.Carriers < 1 || p.Carriers > link.MaxForced {
			return Place{}, fmt.Errorf("mpilib: %w: %s=%q: want a number of carriers from 1 to %d", mpi.ErrEnv, EnvCarriers, text, link.MaxForced)
		}
	}
	switch text, _ := lookup(EnvShared); text {
	case "", "on":
	case "off":
		p.Unshared = true
	default:
		return Place{}, fmt.Errorf("mpilib: %w: %s=%q: want on or off", mpi.ErrEnv, EnvShared, text)
	}
	return p, nil
}

// keyFrom returns the job's key, and whether the environment has one.
func keyFrom(lookup func(string) (string, bool)) (key jobkey.Key, ok bool, err error) {
	if number, ok := lookup(jobkey.EnvKeyFD); ok {
		key, err = jobkey.FromDescriptor(number)
		return key, true, err
	}
	text, ok := lookup(jobkey.EnvKey)
	if !ok {
		return key, false, nil
	}
	if key, err = jobkey.Parse(text); err != nil {
		err = fmt.Errorf("%s: %w", jobkey.EnvKey, err)
	}
	return key, true, err
}

// number sets rank and size and the name of their source.
func (p *Place) number(lookup func(string) (string, bool)) (who string, err error) {
	forced, err := forcedLauncher(lookup)
	if err != nil || forced == noLauncher {
		return "", err
	}
	for _, source := range rankSources {
		if forced != "" && forced != source.word {
			continue
		}
		rankName, rankText := firstSet(lookup, source.rank)
		sizeName, sizeText := firstSet(lookup, source.size)
		if rankName == "" && forced != "" {
			return "", fmt.Errorf("mpilib: %w: %s=%s, but %s is not set: that launcher has not started this process", mpi.ErrEnv, EnvLauncher, forced, source.rank[0])
		}
		if rankName == "" {
			if _, shared := lookup(EnvFirst); source.rank[0] == EnvRank && sizeName != "" && !shared {
				return "", fmt.Errorf("mpilib: %w: %s is set but %s is not", mpi.ErrEnv, sizeName, source.rank[0])
			}
			continue
		}
		first := ""
		if rankName != EnvRank {
			if first, sizeName, sizeText, err = shareOf(lookup, sizeName, sizeText); err != nil {
				return "", err
			}
		}
		if sizeName == "" {
			return "", fmt.Errorf("mpilib: %w: %s is set but %s is not", mpi.ErrEnv, rankName, source.size[0])
		}
		rank, rankErr := strconv.ParseUint(rankText, 10, 31)
		before, firstErr := strconv.ParseUint(cmp.Or(first, "0"), 10, 31)
		size, sizeErr := strconv.ParseUint(sizeText, 10, 31)
		if rank += before; rankErr != nil || firstErr != nil || sizeErr != nil || rank >= size+uint64(len(p.Replacements)) || size > math.MaxInt32 {
			if first != "" {
				rankText += " after " + first
			}
			return "", fmt.Errorf("mpilib: %w: %s=%q of %s=%q: want a rank from 0 to one less than the size", mpi.ErrEnv, rankName, rankText, sizeName, sizeText)
		}
		p.Rank, p.Size = int(rank), int(size)
		return source.name, nil
	}
	if port, ok := lookup("PMI_PORT"); ok {
		return "", fmt.Errorf("mpilib: %w: the process manager listens at PMI_PORT=%s, and numbers nothing in the environment: call mpiexec without -pmi-port, or set %s=%s for a world of one",
			mpi.ErrEnv, port, EnvLauncher, noLauncher)
	}
	return "", nil
}

// shareOf returns the rank that the first process of this launcher has in a job of which it starts a share, such as those of one site, and the job's size; ""
// and the launcher's size if it starts all.
func shareOf(lookup func(string) (string, bool), name, text string) (first, sizeName, sizeText string, err error) {
	first, ok := lookup(EnvFirst)
	if !ok {
		return "", name, text, nil
	}
	if sizeText, ok = lookup(EnvSize); !ok {
		return "", "", "", fmt.Errorf("mpilib: %w: %s is set but %s, the number of all ranks, is not", mpi.ErrEnv, EnvFirst, EnvSize)
	}
	return first, EnvSize, sizeText, nil
}

func firstSet(lookup func(string) (string, bool), names []string) (name, value string) {
	for _, name := range names {
		if value, ok := lookup(name); ok {
			return name, value
		}
	}
	return "", ""
}
