package join

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// maxSpares bounds the spare process numbers of a job.
const maxSpares = 1 << 20

// spares reads how many spare process numbers the job has, and who has one.
func (p *Place) spares(lookup func(string) (string, bool)) error {
	text, _ := lookup(EnvSpares)
	if text == "" || text == "0" {
		return nil
	}
	list, _ := lookup(EnvReplaced)
	wrong := func() error {
		return fmt.Errorf("mpilib: %w: %s=%q and %s=%q: want a number, and the ranks that were replaced, separated by commas, at most as many", mpi.ErrEnv, EnvSpares, text, EnvReplaced, list)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxSpares {
		return wrong()
	}
	p.Spares = n
	if list == "" {
		return nil
	}
	for word := range strings.SplitSeq(list, ",") {
		rank, err := strconv.ParseUint(word, 10, 31)
		if err != nil || len(p.Replacements) == n {
			return wrong()
		}
		p.Replacements = append(p.Replacements, int(rank))
	}
	return nil
}

// newcomers reads which spare number this process has, of a job with replicas: it then comes in place of the lost replica that its
// rank and EnvCopy name.
func (p *Place) newcomers(lookup func(string) (string, bool)) error {
	text, ok := lookup(EnvProcess)
	if p.Replicas <= 1 {
		if ok {
			return fmt.Errorf("mpilib: %w: %s=%q: only jobs with replicas (%s) have processes that come in place of others", mpi.ErrEnv, EnvProcess, text, EnvCopies)
		}
		return nil
	}
	if len(p.Replacements) > 0 || p.Spares > replica.MaxSpares {
		return fmt.Errorf("mpilib: %w: with replicas (%s), want at most %d %s, and no %s", mpi.ErrEnv, EnvCopies, replica.MaxSpares, EnvSpares, EnvReplaced)
	}
	p.Newcomers, p.Spares = p.Spares, 0
	p.Marks, _ = lookup(marks.Env)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(text)
	if first := p.Size * p.Replicas; err != nil || n < first || n >= p.Processes() {
		return fmt.Errorf("mpilib: %w: %s=%q: want a number from %d on, and below %d", mpi.ErrEnv, EnvProcess, text, first, p.Processes())
	}
	p.Number = n
	return nil
}

// checkSpares returns an error if what the environment says of spare numbers does not go with the rest.
func (p *Place) checkSpares() error {
	for _, rank := range p.Replacements {
		if rank >= p.Size {
			return fmt.Errorf("mpilib: %w: %s: rank %d of %d was replaced", mpi.ErrEnv, EnvReplaced, rank, p.Size)
		}
	}
	return nil
}
