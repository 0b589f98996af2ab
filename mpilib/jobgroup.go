package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/mpilib/internal/gridmap"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// EnvGroups holds the groups of the job, such as "master:1,workers:7": names and
// numbers of ranks, in the order of the ranks.
const EnvGroups = jobgroups.Env

// PsetGroup is the prefix of the process set's name of a job's group; the group's name follows.
// Every process knows the sets of all groups.
const PsetGroup = "isthmus://GROUP/"

// JobGroup is a group of the job: a part of the world's ranks that got a name when the job was
// started. It differs from Group, which is any set of processes.
type JobGroup = gridmap.JobGroup

// WithGroups sets the job's groups to text, in the format of EnvGroups, for programs that do not
// use the environment and for tests.
func WithGroups(text string) Option { return func(cfg *config) { cfg.groups = &text } }

// readGroups reads the groups of a world of this size.
func (cfg *config) readGroups() error {
	text, set := cfg.lookup(EnvGroups)
	if !set {
		text = ""
	}
	if cfg.groups != nil {
		text = *cfg.groups
	}
	var err error
	if cfg.layout, err = jobgroups.Parse(text, cfg.place.Size); err != nil {
		return fmt.Errorf("mpilib: %w: %s: %w", ErrEnv, EnvGroups, err)
	}
	return nil
}

// JobGroups returns the groups of the job, in the order of their ranks; none if it was started
// without. The caller owns the slice. It is local.
func (w *World) JobGroups() []JobGroup {
	var groups []JobGroup
	first := 0
	for _, g := range w.config.layout {
		groups = append(groups, JobGroup{Name: g.Name, First: first, Count: g.Count})
		first += g.Count
	}
	return groups
}

// jobGroup returns the name of the group of a world rank; empty if the job has none.
func (w *World) jobGroup(world int) string {
	if i := w.config.layout.Of(world); i >= 0 {
		return w.config.layout[i].Name
	}
	return ""
}

// groupMembers returns the processes of a group of the job.
func (w *World) groupMembers(name string) (*group.Group, error) {
	for _, g := range w.JobGroups() {
		if g.Name == name {
			return group.Range(g.First, g.Count)
		}
	}
	return nil, fmt.Errorf("%w: the job has no group %.100q; its groups are %q", ErrArg, name, w.config.layout.String())
}
