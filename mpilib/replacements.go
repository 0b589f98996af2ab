package mpilib

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
)

// Replacements describes a job in which a lost process is replaced by one that starts later, with a process
// number that none had before. The processes of MPI_COMM_WORLD have their ranks as numbers, from 0 to Ranks-1; the numbers
// from there on are spare until a process is started with one. A failed number never returns.
//
// A process that replaces another one is no member of the others' MPI_COMM_WORLD. Its own has one process, as
// MPI-4.1 has it for processes that join a job (section 11.8), and so it shares only Comm with the
// others.
type Replacements struct {
	// Comm has all numbers of the job as ranks. A message to a number that is not started yet waits until it
	// is, and what was received from it says that it is. A receive from any source finds messages of those that have
	// started. The numbers that have failed are those of Comm.GetFailed. Point-to-point calls and slots work on
	// Comm; collective calls do not, since they need all of its members.
	Comm *Comm

	// Ranks is the size of MPI_COMM_WORLD of the processes that the job began with.
	Ranks int

	// Ranked has the rank that each process with a spare number goes on with: number Ranks+i with
	// Ranked[i]. It lists those that were started when this process was, itself included; of later ones the program
	// learns by messages.
	Ranked []int
}

// Rank returns the rank of which this process does the work: its own, or that of the process that it replaces.
func (r *Replacements) Rank() int {
	number := r.Comm.Rank()
	if number < r.Ranks {
		return number
	}
	return r.Ranked[number-r.Ranks]
}

// Replacements returns what this process knows of spare process numbers, nil if the job has none (`isthmus
// run --replace`). The caller owns the result.
func (w *World) Replacements() *Replacements {
	if w.comms.numbers == nil {
		return nil
	}
	p := w.config.place
	return &Replacements{Comm: w.comms.numbers, Ranks: p.Size, Ranked: slices.Clone(p.Replacements)}
}

// numberComm makes the communicator of all process numbers, if there are spare ones.
func (w *World) numberComm() error {
	p := w.config.place
	if p.Spares == 0 {
		return nil
	}
	all, err := group.Range(0, p.Processes())
	if err == nil {
		w.comms.numbers = newComm(w, "process numbers", all, comm.Numbers)
	}
	return err
}

// startsLater reports whether a process may not have been started yet.
func (w *World) startsLater(process int) bool {
	p := w.config.place
	return p.Spares > 0 && process >= p.Size+len(p.Replacements)
}

// WithSpares makes a process that joins by WithConnector one of a job with that many spare numbers. Process size+i goes on
// with rank replacements[i]; WithConnector's rank may be such a number. Elsewhere the environment says so.
func WithSpares(spares int, replacements ...int) Option {
	return func(cfg *config) { cfg.spares = join.Place{Spares: spares, Replacements: replacements} }
}

// readSpares completes the config of a process that has got spare numbers by WithSpares.
func (cfg *config) readSpares() {
	if s := cfg.spares; s.Spares > 0 && cfg.connector != nil {
		p := *cfg.place
		p.Spares, p.Replacements = s.Spares, s.Replacements
		cfg.place = &p
	}
}
