package nodeservice

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/launch/watch"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds on a submitter's messages.
const (
	maxText  = 1 << 20 // bytes of arguments, and of the environment
	maxFiles = 4096    // staged, and fetched
	maxName  = 4096    // bytes of a file's name
	maxSums  = 1 << 16 // in one message
)

func fault(code nodepb.Fault_Code, name, format string, args ...any) *nodepb.ToSubmitter {
	return &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Fault{Fault: &nodepb.Fault{Code: code, Name: []byte(name), Text: fmt.Appendf(nil, format, args...)}}}
}

// program is the validated content of a Start, as a record has it.
type program struct {
	Processes []place
	Size      int      // ranks of the whole job
	Replicas  int      // of each rank; 0: 1
	Spares    int      // process numbers beyond those that the job begins with
	Replaced  []uint32 // by the processes with spare numbers so far: the numbers of those in whose places they are
	Argv      []string
	Outputs   []string
	Input     bool
	Hosts     []watch.Host // all hosts of the job at its start here; empty: they do not watch each other
	Gossip    gossip.Config
}

// first returns how many processes the job begins with, which is the first spare number.
func (p *program) first() int { return p.Size * max(1, p.Replicas) }

// numbers returns how many process numbers the job has.
func (p *program) numbers() int { return p.first() + p.Spares }

// has reports whether the job has a process.
func (p *program) has(q allocate.Process) bool {
	if spare := q.Rank - p.first(); p.Spares > 0 && spare >= 0 {
		return spare < len(p.Replaced) && q.Copy == 0
	}
	return q.Rank < p.Size && q.Copy <= allocate.MaxProcesses && (p.Replicas <= 1 || q.Copy < p.Replicas)
}

// seat returns the rank and the replica of a process of a job with replicas.
func (p *program) seat(q allocate.Process) allocate.Process {
	if spare := q.Rank - p.first(); p.Replicas > 1 && spare >= 0 {
		lost := int(p.Replaced[spare])
		return allocate.Process{Rank: lost % p.Size, Copy: lost / p.Size}
	}
	return q
}

// listens reports whether a process here reads the input.
func (p *program) listens() bool {
	return p.Input && slices.ContainsFunc(p.Processes, func(q allocate.Process) bool { return q.Rank == 0 })
}

func programOf(m *nodepb.Start, job overlay.JobID) (program, error) {
	environment := nodepb.Words(m.Environment)
	p := program{Size: int(m.Size), Replicas: int(m.Replicas), Spares: int(m.Spares), Replaced: m.Replacements, Argv: nodepb.Words(m.Argv), Outputs: nodepb.Words(m.Outputs), Input: m.Input}
	key, err := jobkey.Parse(m.JobKey)
	if err != nil {
		return p, err
	}
	switch {
	case key.ID() != job:
		return p, fmt.Errorf("the key is that of job %s, the reservation that of %s", key.ID(), job)
	case m.Size < 1 || m.Size > math.MaxInt32:
		return p, fmt.Errorf("a job of %d ranks", m.Size)
	case m.Replicas > 1 && uint64(m.Size)*uint64(m.Replicas) > allocate.MaxProcesses:
		return p, fmt.Errorf("%d ranks of %d replicas each; at most %d processes", m.Size, m.Replicas, allocate.MaxProcesses)
	case uint64(p.first())+uint64(m.Spares) > allocate.MaxProcesses && m.Spares > 0:
		return p, fmt.Errorf("%d spare numbers for %d ranks of %d replicas each; at most %d processes", m.Spares, m.Size, m.Replicas, allocate.MaxProcesses)
	case len(m.Replacements) > int(m.Spares) || slices.ContainsFunc(m.Replacements, func(q uint32) bool { return int(q) >= p.first() }):
		return p, fmt.Errorf("processes with %d spare numbers replace %v of %d", m.Spares, m.Replacements, p.first())
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return p, errors.New("no program to run")
	case tooLong(p.Argv) || tooLong(environment):
		return p, fmt.Errorf("arguments or environment have more than %d bytes or a zero byte among them", maxText)
	case len(p.Outputs) > maxFiles:
		return p, fmt.Errorf("%d output files; at most %d", len(p.Outputs), maxFiles)
	case slices.ContainsFunc(environment, func(v string) bool { return strings.Index(v, "=") < 1 }):
		return p, errors.New("an environment that is not NAME=VALUE")
	}
	seen, readers := map[allocate.Process]bool{}, 0
	for _, q := range m.Processes {
		one := q.Value()
		if !p.has(one) || seen[one] {
			return p, fmt.Errorf("rank %d, replica %d of a job of %d ranks is there twice or not at all", one.Rank, one.Copy, p.Size)
		}
		seen[one] = true
		if one.Rank == 0 {
			readers++
		}
		p.Processes = append(p.Processes, one)
	}
	if p.Input && readers > 1 {
		return p, fmt.Errorf("%d replicas of rank 0 on one node: only one can read the input", readers)
	}
	for _, name := range p.Outputs {
		if err := checkName(name); err != nil {
			return p, fmt.Errorf("output file: %w", err)
		}
	}
	if err := jobagent.CheckLimits(m.Limits); err != nil {
		return p, err
	}
	if p.Hosts, p.Gossip, err = hostsOf(m); err != nil {
		return p, err
	}
	_, err = jobgroups.Parse(m.Groups, p.Size)
	return p, err
}

// tooLong reports whether words exceed the bounds for starting a process, or contain bytes that are
// not permitted there.
func tooLong(words []string) bool {
	n := 0
	for _, w := range words {
		if n += len(w) + 1; n > maxText || strings.Contains(w, "\x00") {
			return true
		}
	}
	return false
}

// checkName returns an error if a file of that name cannot be in a job's folder.
func checkName(name string) error {
	if len(name) > maxName || strings.Contains(name, "\x00") || !filepath.IsLocal(filepath.FromSlash(name)) || filepath.Clean(name) == "." {
		return fmt.Errorf("%.100q is no name below the job's folder", name)
	}
	return nil
}

func sumsOf(list [][]byte) ([]stage.Sum, error) {
	if len(list) > maxSums {
		return nil, fmt.Errorf("%d sums in one message; at most %d", len(list), maxSums)
	}
	sums := make([]stage.Sum, len(list))
	for i, b := range list {
		if len(b) != len(sums[i]) {
			return nil, fmt.Errorf("a sum of %d bytes; want %d", len(b), len(sums[i]))
		}
		sums[i] = stage.Sum(b)
	}
	return sums, nil
}
