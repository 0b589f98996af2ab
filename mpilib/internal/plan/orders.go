package plan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Orders is what a process's environment says about algorithms.
type Orders struct {
	Forced  string             `json:"forced,omitempty"`  // as ISTHMUS_COLL has it
	Learned map[string]float64 `json:"learned,omitempty"` // as collectives.Model has it
}

func (o Orders) encoded() []byte {
	if o.Forced == "" && len(o.Learned) == 0 {
		return nil
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return b
}

// The environment of a process; package mpilib describes the variables.
const (
	EnvForced  = "ISTHMUS_COLL"
	EnvLearned = "ISTHMUS_COLL_LEARNED"
)

// ReadOrders reads the environment of a process; only the world's first one reads what was learned.
func ReadOrders(lookup func(string) (string, bool), first bool) (o Orders, err error) {
	if list, ok := lookup(EnvForced); ok {
		if _, err := collectives.ParseForced(list); err != nil {
			return o, fmt.Errorf("mpilib: %w: %s: %w", mpi.ErrEnv, EnvForced, err)
		}
		o.Forced = list
	}
	name, ok := lookup(EnvLearned)
	if !ok || name == "" || !first {
		return o, nil
	}
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		o.Learned, err = ReadLearned(f)
	}
	if err != nil {
		return o, fmt.Errorf("mpilib: %w: %s: %s: %w", mpi.ErrEnv, EnvLearned, name, err)
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("mpilib: %w: %s and %s %w", mpi.ErrEnv, EnvForced, EnvLearned, err)
	}
	return o, nil
}

// ReadLearned reads correction factors.
func ReadLearned(r io.Reader) (map[string]float64, error) {
	learned := map[string]float64{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if len(words) != 4 {
			return nil, fmt.Errorf("line %d: %d words, not a collective, an algorithm, a number of bytes and a factor", n, len(words))
		}
		collective, err := operation.Parse(words[0])
		if err == nil {
			_, err = collectives.Find(collective, words[1])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		bytes, err := strconv.Atoi(words[2])
		if err != nil || bytes < 0 {
			return nil, fmt.Errorf("line %d: %q is no number of bytes", n, words[2])
		}
		factor, err := strconv.ParseFloat(words[3], 64)
		if err != nil || !(factor >= 1e-3 && factor <= 1e3) {
			return nil, fmt.Errorf("line %d: %q is no factor from 0.001 to 1000", n, words[3])
		}
		learned[collectives.LearnedKey(collective, words[1], bytes)] = factor
	}
	return learned, lines.Err()
}

// Check returns an error if the orders are too long to send to the ranks.
func (o Orders) Check() error {
	if n := len(o.encoded()); n > maxOrders {
		return fmt.Errorf("come to %d bytes; at most %d are possible", n, maxOrders)
	}
	return nil
}
