package detached

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Phase says how far a job is.
type Phase string

// The phases of a job. Lost is never recorded: it is what others see of a job without a driver that has not ended.
const (
	Starting Phase = "starting" // hosts are looked for, booked and prepared
	Running  Phase = "running"  // all its processes have been started
	Ended    Phase = "ended"
	Lost     Phase = "lost" // the driver has gone without recording how the job ended
)

// State is what a driver records of its job.
type State struct {
	ID      overlay.JobID `json:"job"`
	Phase   Phase         `json:"phase"`
	Argv    []string      `json:"argv"`
	Host    string        `json:"host"` // on which the driver runs
	PID     int           `json:"pid"`  // of the driver
	Limit   int64         `json:"output_limit"`
	Began   time.Time     `json:"began"`
	Started time.Time     `json:"started,omitzero"` // zero: its processes were never all started
	Ended   time.Time     `json:"ended,omitzero"`
	Status  int           `json:"status"`          // the exit status, once it has ended
	Error   string        `json:"error,omitempty"` // why it is not 0
}

// Root returns the folder in which the user's jobs have theirs: isthmus/jobs in XDG_STATE_HOME, or
// in ~/.local/state.
func Root() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification: a relative one is ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the state of detached jobs: %w; set HOME or XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "isthmus", "jobs"), nil
}

// The names of a job's files.
const (
	stateFile  = "state.json"
	driverFile = "driver"
)

// write records the state in a job's folder. Readers see the former state or this one.
func (s *State) write(dir string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, stateFile)
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}

// readState reads the state in a job's folder.
func readState(dir string) (s State, err error) {
	name := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}
