package mpilib

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
)

// The environment of collective calls, and the hint. Where a communicator's ranks are on
// several nodes or sites, its rank 0's environment counts for all of them, also for the
// communicators made from it; where they are not, all have the same.
const (
	// EnvColl forces algorithms: "bcast=two-level:8,allreduce=ring". isthmus-lab bench coll
	// lists them. Where an algorithm would give a wrong result, for the operator or the
	// order of the ranks, another one is taken.
	EnvColl = "ISTHMUS_COLL"
	// EnvCollExplain is "1" where rank 0 of each communicator is to tell on the standard
	// error, once for each new kind of call, which algorithm it takes, why not the next.
	EnvCollExplain = "ISTHMUS_COLL_EXPLAIN"
	// EnvCollLearned names a file of corrections of what is predicted: lines of a
	// collective, an algorithm, a number of bytes and a factor, "bcast two-level:8
	// 65536 1.2". What is behind a # is left out. The process with rank 0 of the world
	// reads it.
	EnvCollLearned = "ISTHMUS_COLL_LEARNED"

	// HintColl is EnvColl for one communicator (SetInfo), and stronger. All ranks give
	// the same.
	HintColl = "isthmus_coll"
)

// orders are what a process's environment says of algorithms.
type orders struct {
	Forced  string             `json:"forced,omitempty"`  // EnvColl
	Learned map[string]float64 `json:"learned,omitempty"` // as collectives.Model has it
}

func (o orders) encoded() []byte {
	if o.Forced == "" && len(o.Learned) == 0 {
		return nil
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return b
}

// readOrders reads the environment of a process.
func (cfg *config) readOrders() error {
	if list, ok := cfg.lookup(EnvColl); ok {
		if _, err := collectives.ParseForced(list); err != nil {
			return fmt.Errorf("mpilib: %w: %s: %w", ErrEnv, EnvColl, err)
		}
		cfg.orders.Forced = list
	}
	if text, ok := cfg.lookup(EnvCollExplain); ok && text != "" && text != "0" && cfg.explain == nil {
		cfg.explain = os.Stderr
	}
	name, ok := cfg.lookup(EnvCollLearned)
	if !ok || name == "" || cfg.place.Rank != 0 {
		return nil
	}
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		cfg.orders.Learned, err = readLearned(f)
	}
	if err != nil {
		return fmt.Errorf("mpilib: %w: %s: %s: %w", ErrEnv, EnvCollLearned, name, err)
	}
	if n := len(cfg.orders.encoded()); n > maxOrders {
		return fmt.Errorf("mpilib: %w: %s and %s come to %d bytes; at most %d are possible", ErrEnv, EnvColl, EnvCollLearned, n, maxOrders)
	}
	return nil
}

// readLearned reads corrections.
func readLearned(r io.Reader) (map[string]float64, error) {
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
		if _, err := collectives.Find(words[0], words[1]); err != nil {
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
		learned[collectives.LearnedKey(words[0], words[1], bytes)] = factor
	}
	return learned, lines.Err()
}

// forcedBy returns the algorithms that info forces, and whether it says anything of that.
func forcedBy(info *Info) (list string, given bool, err error) {
	list, given = info.Get(HintColl)
	if given {
		if _, err := collectives.ParseForced(list); err != nil {
			return "", false, fmt.Errorf("%w: hint %s: %w", ErrArg, HintColl, err)
		}
	}
	return list, given, nil
}
