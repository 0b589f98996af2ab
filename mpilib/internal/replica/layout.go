package replica

import "fmt"

// A Layout numbers the processes of a job. Replica c of a rank is process c*Ranks + rank, so that the
// first replicas have the numbers of a job without replicas.
type Layout struct {
	Ranks    int // of the world that the program sees
	Replicas int // of each rank
}

// Size returns the number of processes.
func (l Layout) Size() int { return l.Ranks * l.Replicas }

// Process returns the number of a rank's replica.
func (l Layout) Process(rank, replica int) int { return replica*l.Ranks + rank }

// Rank returns the rank of a process.
func (l Layout) Rank(process int) int { return process % l.Ranks }

// Replica returns which replica of its rank a process is.
func (l Layout) Replica(process int) int { return process / l.Ranks }

// A Table says which replica of a rank serves a replica of another: sends it its messages. It is a function
// of which replicas live.
type Table uint8

// The tables.
const (
	// Parallel: replica c serves replica c, or else the lowest that lives. Without failures
	// sets of replicas exchange acknowledgements only.
	Parallel Table = iota
	// Primary: the lowest that lives serves all (the master of P2P-MPI).
	Primary
)

func (t Table) String() string {
	switch t {
	case Parallel:
		return "parallel"
	case Primary:
		return "primary"
	}
	return fmt.Sprintf("Table(%d)", uint8(t))
}

// server returns which replica serves the given one of another rank, if alive says which live, or -1.
func (t Table) server(replicas, to int, alive func(replica int) bool) int {
	if t == Parallel && alive(to) {
		return to
	}
	return lowest(replicas, alive)
}

// lowest returns the lowest replica that lives, or -1.
func lowest(replicas int, alive func(replica int) bool) int {
	for c := range replicas {
		if alive(c) {
			return c
		}
	}
	return -1
}
