package mpilib

import (
	"fmt"
	"math"
	"strconv"

	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
)

// The environment of a rank, as `isthmus run` sets it.
const (
	EnvRank   = "ISTHMUS_RANK"
	EnvSize   = "ISTHMUS_SIZE"
	EnvKeyFD  = jobkey.EnvKeyFD  // the descriptor to read the job's key from
	EnvJobKey = jobkey.EnvKey    // in place of it, for processes that are started by hand: the key
	EnvGrant  = grant.Env        // by which the job works for a user of the grid (isthmus job grant)
	EnvHelper = "ISTHMUS_HELPER" // the helper's Unix socket
	EnvDir    = "ISTHMUS_DIR"    // instead of a helper: a directory for sockets of one machine
	// EnvCarriers is how many connections each link to another node has at once. Without
	// it every link finds out for itself what it gains from; 1 is one only.
	EnvCarriers = "ISTHMUS_CARRIERS"
	// EnvShared is "off" where messages within a node are not to go through shared memory.
	EnvShared = "ISTHMUS_SHARED"
	EnvReport = "ISTHMUS_REPORT" // where Finalize writes the links: a file to append to, or a directory
)

// place is what the environment says about this process. The zero place but
// for size 1 is a world of one.
type place struct {
	rank, size  int
	key         jobkey.Key
	helper, dir string
	carriers    int    // of a link; 0: its own choice
	unshared    bool   // no shared memory
	grant       []byte // of the job; may be empty
}

// rankSources lists who may have numbered the processes, in order of
// precedence: who started last, started innermost, and is asked first.
var rankSources = []struct {
	name       string
	rank, size []string // the first that is set counts
}{
	{"isthmus run", []string{EnvRank}, []string{EnvSize}},
	{"PMI", []string{"PMI_RANK"}, []string{"PMI_SIZE"}},
	{"PMIx", []string{"PMIX_RANK"}, []string{"PMIX_SIZE", "OMPI_COMM_WORLD_SIZE", EnvSize, "SLURM_NTASKS"}},
	{"Slurm", []string{"SLURM_PROCID"}, []string{"SLURM_NTASKS", "SLURM_NPROCS"}},
}

// placeFrom reads the environment through lookup. It is a function of its
// argument alone.
func placeFrom(lookup func(string) (string, bool)) (place, error) {
	p := place{size: 1}
	who, err := p.number(lookup)
	if err != nil {
		return place{}, err
	}
	p.helper, _ = lookup(EnvHelper)
	p.dir, _ = lookup(EnvDir)
	if p.helper != "" && p.dir != "" {
		return place{}, fmt.Errorf("mpilib: %w: both %s (%s) and %s (%s) are set; unset one", ErrEnv, EnvHelper, p.helper, EnvDir, p.dir)
	}
	if text, ok := lookup(EnvGrant); ok && text != "" {
		if p.grant, err = grant.FromText(text); err != nil {
			return place{}, fmt.Errorf("mpilib: %w: %s: %w", ErrEnv, EnvGrant, err)
		}
	}
	key, ok, keyErr := keyFrom(lookup)
	if p.size == 1 {
		p.key = key // for names that it publishes
		return p, nil
	}
	if !ok || p.helper == "" && p.dir == "" {
		return place{}, fmt.Errorf("mpilib: %w: %s numbers this process %d of %d, but to reach the others it needs %s and %s or %s; "+
			"start it with `isthmus run`, or export them to every rank (`isthmus job new` makes a key)",
			ErrEnv, who, p.rank, p.size, EnvJobKey, EnvHelper, EnvDir)
	}
	if p.key = key; keyErr != nil {
		return place{}, fmt.Errorf("mpilib: %w: %w", ErrEnv, keyErr)
	}
	if text, ok := lookup(EnvCarriers); ok && text != "" {
		if p.carriers, err = strconv.Atoi(text); err != nil || p.carriers < 1 || p.carriers > link.MaxForced {
			return place{}, fmt.Errorf("mpilib: %w: %s=%q: want a number of carriers from 1 to %d", ErrEnv, EnvCarriers, text, link.MaxForced)
		}
	}
	switch text, _ := lookup(EnvShared); text {
	case "", "on":
	case "off":
		p.unshared = true
	default:
		return place{}, fmt.Errorf("mpilib: %w: %s=%q: want on or off", ErrEnv, EnvShared, text)
	}
	return p, nil
}

// keyFrom returns the job's key, and whether the environment says anything of one.
func keyFrom(lookup func(string) (string, bool)) (key jobkey.Key, ok bool, err error) {
	if number, ok := lookup(EnvKeyFD); ok {
		key, err = jobkey.FromDescriptor(number)
		return key, true, err
	}
	text, ok := lookup(EnvJobKey)
	if !ok {
		return key, false, nil
	}
	if key, err = jobkey.Parse(text); err != nil {
		err = fmt.Errorf("%s: %w", EnvJobKey, err)
	}
	return key, true, err
}

// number sets rank and size and says who chose them.
func (p *place) number(lookup func(string) (string, bool)) (who string, err error) {
	for _, source := range rankSources {
		rankName, rankText := firstSet(lookup, source.rank)
		sizeName, sizeText := firstSet(lookup, source.size)
		if rankName == "" {
			if source.name == "isthmus run" && sizeName != "" {
				return "", fmt.Errorf("mpilib: %w: %s is set but %s is not", ErrEnv, sizeName, source.rank[0])
			}
			continue
		}
		if sizeName == "" {
			return "", fmt.Errorf("mpilib: %w: %s is set but %s is not", ErrEnv, rankName, source.size[0])
		}
		rank, rankErr := strconv.ParseUint(rankText, 10, 31)
		size, sizeErr := strconv.ParseUint(sizeText, 10, 31)
		if rankErr != nil || sizeErr != nil || rank >= size || size > math.MaxInt32 {
			return "", fmt.Errorf("mpilib: %w: %s=%q of %s=%q: want a rank from 0 to one less than the size", ErrEnv, rankName, rankText, sizeName, sizeText)
		}
		p.rank, p.size = int(rank), int(size)
		return source.name, nil
	}
	return "", nil
}

func firstSet(lookup func(string) (string, bool), names []string) (name, value string) {
	for _, name := range names {
		if value, ok := lookup(name); ok {
			return name, value
		}
	}
	return "", ""
}
