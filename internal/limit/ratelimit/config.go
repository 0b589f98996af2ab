package ratelimit

import (
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// Config holds the quota settings of a daemon that carries links.
type Config struct {
	Rate       quota.Rate  `yaml:"rate" default:"none" help:"Of all links together. Users share it fairly, and so do the links of a user. Both directions count, so this is what a network card that receives and resends the traffic carries in each direction."`
	PerUser    Limits      `yaml:"per_user" help:"Of each user's links. A job whose user is not known counts as a separate user."`
	PerProject Limits      `yaml:"per_project" help:"Of each project's links. A job without a project has none of these limits."`
	PerJob     JobLimits   `yaml:"per_job" help:"Of each job's links."`
	Trickle    quota.Rate  `yaml:"trickle" default:"1Mbit/s" help:"Rate of the existing links of users, projects or jobs that have used up bytes_month; their new links are refused."`
	State      daemon.Path `yaml:"state" example:"$STATE/quota.json" help:"File that keeps the month's counts across restarts; the daemon creates it. It is written once a minute and at the end, so a crash loses up to a minute of counts. Required with bytes_month."`
}

// LiveKeys returns the keys of a Config, in a daemon's setting quota, that SetRules puts into
// effect while the daemon serves.
func LiveKeys() []string {
	return []string{"quota.rate", "quota.per_user", "quota.per_project", "quota.per_job", "quota.trickle"}
}

// Limits are those of each user or project.
type Limits struct {
	Rate  quota.Rate  `yaml:"rate" default:"none" help:"Of these links together."`
	Links int         `yaml:"links" default:"0" min:"0" help:"Links at a time; more are refused. 0 is no limit."`
	Month daemon.Size `yaml:"bytes_month" default:"0" help:"Bytes in a calendar month (UTC), both directions together. After that, links continue at trickle's rate and new links are refused. 0 is no limit."`
}

// JobLimits are those of each job.
type JobLimits struct {
	Rate  quota.Rate `yaml:"rate" default:"none" help:"Of these links together."`
	Links int        `yaml:"links" default:"0" min:"0" help:"Links at a time; more are refused. 0 is no limit."`
}

// Check validates the keys against each other; keys are below prefix, for instance "quota".
func (c Config) Check(prefix string) error {
	if (c.PerUser.Month > 0 || c.PerProject.Month > 0) && c.State == "" {
		return daemon.Wrong(prefix+".state", "bytes_month needs a file to keep its counts in over restarts")
	}
	return nil
}

// Rules returns the settings in the form of package quota.
func (c Config) Rules() quota.Rules {
	limits := func(l Limits) quota.Limits {
		return quota.Limits{Links: l.Links, Rate: l.Rate, Month: uint64(l.Month)}
	}
	return quota.Rules{
		Rate: c.Rate, User: limits(c.PerUser), Project: limits(c.PerProject),
		Job: quota.Limits{Links: c.PerJob.Links, Rate: c.PerJob.Rate}, Trickle: c.Trickle,
	}
}
