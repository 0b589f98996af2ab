package replicas

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// Options of a run.
type Options struct {
	// Self is the command line that runs this program as a process (Part), less Part's role. Element 0 is a path.
	Self []string

	Only   *regexp.Regexp // rows to print, by SCENARIO/WHAT; nil is all
	Class  string         // of the NAS kernels
	Ranks  []int          // numbers of ranks of IS at 100 Mb/s
	Most   int            // replicas there, from 1
	Repeat int            // turns of each
	For    time.Duration  // about how long a turn of round trips takes
	JSON   bool
	Out    io.Writer
	Err    io.Writer // progress messages; not nil
}

// maxProcesses bounds the processes of one job.
const maxProcesses = 64

// Check returns what is wrong with the options, or nil.
func (o Options) Check() error {
	switch {
	case !slices.Contains([]string{"S", "W", "A", "B"}, o.Class):
		return fmt.Errorf("--class %s: want S, W, A or B", o.Class)
	case o.Repeat < 1:
		return fmt.Errorf("--repeat %d: want 1 or more, 5 for reliable figures", o.Repeat)
	case o.Most < 2:
		return fmt.Errorf("--replicas %d: want 2 or more", o.Most)
	case len(o.Ranks) == 0:
		return errors.New("--ranks: want one number at least")
	}
	for _, n := range o.Ranks {
		if n < 2 || n&(n-1) != 0 || n*o.Most > maxProcesses {
			return fmt.Errorf("--ranks %d with %d replicas: want a power of two from 2, and at most %d processes", n, o.Most, maxProcesses)
		}
	}
	return nil
}
