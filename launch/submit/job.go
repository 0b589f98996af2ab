package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Job describes what to run, and where.
type Job struct {
	Key  jobkey.Key // of this job only
	Argv []string   // as the nodes get it; see Program
	Env  []string   // NAME=VALUE, in addition to what the nodes set

	Groups jobgroups.Layout // of the ranks; Profile has its own

	// Where. Hosts or Profile, if set, replace Strategy; Place.Ranks is then the sum of theirs. With
	// Place.Graph there is no Profile, and Hosts have no numbers of ranks.
	Place    allocate.Job
	Strategy string           // a name of allocate.Strategies, or with Place.Graph also of GraphStrategies; empty: allocate.DefaultStrategy
	Hosts    []HostShare      // all with a number of ranks, or all without: then they are the only candidates
	Profile  *profile.Profile // groups and their requirements
	Wait     time.Duration    // how long to wait for hosts, when there are too few
	Queue    bool             // wait longer while there would be enough, but for the jobs that run there

	Files   []File   // to stage to every host that is used
	Fetch   []string // names below the job's folder, or patterns of path.Match, of files to fetch from every host
	FetchTo Fetcher  // receives them; required if there are any

	Limits  []*nodepb.Limit
	Survive bool // see ranks.Job

	// Independent makes replicas of ranks processes of their own, of a program that does not use the
	// message library: the output of each is printed, its end counts for itself, only replica 0 of rank 0
	// reads Stdin, and the hosts do not watch each other.
	Independent bool

	// PinRank0 makes rank 0 run once, whatever Place.Copies is, on the nearest host: the submitter's own, if
	// that takes jobs. It excludes Profile and Hosts with numbers of ranks.
	PinRank0 bool

	// ReplicaTable says which replicas of a rank serve which of another, parallel or primary; empty:
	// parallel. SendDeterministic says that what the program sends does not depend on the order in which
	// messages arrive. Both are for the message library, of jobs with replicas.
	ReplicaTable      string
	SendDeterministic bool

	// Replace is how many processes that a signal or the loss of their host has ended are replaced: another
	// host starts a process that goes on with the rank, under a process number from Place.Ranks on, and the
	// message library tells it so (mpilib.Replacements). Each counts once, also one that is
	// lost in its turn. With replicas it is the lost replica that comes back, at a milestone of the program (mpilib's World.Milestone), and the numbers
	// are from Place.Ranks*Place.Copies on, at most MaxNewcomers. It excludes Independent and Profile; a replacement gets no Stdin.
	Replace int

	// Hang is how long a node, or the path to it, may be silent before the others consider its
	// processes dead, at most MaxHang; 0: 5 s.
	Hang time.Duration

	Stdin   io.Reader    // sent to rank 0; a Read may still be in progress when Run returns
	Output  ranks.Output // Run does not close it
	Signals <-chan os.Signal

	// Progress, if set, is called for each step, from one goroutine. It must not block.
	Progress func(Progress)
}

// MaxHang is the longest time that a job may let a silent node count as alive.
const MaxHang = nodeservice.MaxHang

// MaxNewcomers is how many lost replicas of a job may come back.
const MaxNewcomers = 62

// HostShare is a host and how many ranks to run there; 0: unspecified.
type HostShare struct {
	Node  overlay.NodeID
	Ranks int
}

// Check returns an error if the fields contradict each other.
func (j *Job) Check() error {
	switch {
	case len(j.Argv) == 0:
		return errors.New("no program to run")
	case j.Output == nil:
		return errors.New("the job has no output")
	case len(j.Fetch) > 0 && j.FetchTo == nil:
		return errors.New("files are to be copied back, but no folder for them is given")
	case j.Hang < 0 || j.Hang > MaxHang:
		return fmt.Errorf("a node may hang for %v; want at most %v", j.Hang, MaxHang)
	case len(j.Hosts) > 0 && j.Profile != nil:
		return errors.New("hosts and a profile both say where the job runs: give one of them")
	case j.PinRank0 && (j.Profile != nil || ranksOf(j.Hosts) > 0):
		return errors.New("rank 0 is to be pinned, but a profile or the hosts' numbers of ranks say where it runs: give one of them")
	case j.Survive && j.Place.Copies > 1 && !j.Independent:
		return errors.New("a program cannot go on without a rank that has lost all of its replicas, which surviving it would take: give one of them")
	case j.Replace < 0:
		return fmt.Errorf("%d lost processes are to be replaced; want 0 or more", j.Replace)
	case j.Replace > 0 && (j.Independent || j.Profile != nil):
		return errors.New("lost processes are replaced in jobs without a profile, and not where replicas are independent of each other: give one of them")
	case j.Replace > MaxNewcomers && j.Place.Copies > 1:
		return fmt.Errorf("%d lost replicas are to come back: want at most %d", j.Replace, MaxNewcomers)
	case j.Place.Ranks > 0 && j.Replace > allocate.MaxProcesses-j.Place.Ranks*j.Place.Copies:
		return fmt.Errorf("%d ranks and %d more processes to replace lost ones: at most %d processes are allowed", j.Place.Ranks, j.Replace, allocate.MaxProcesses)
	case j.ReplicaTable != "" && !slices.Contains(ReplicaTables, j.ReplicaTable):
		return fmt.Errorf("no replica table %.40q: want one of %q", j.ReplicaTable, ReplicaTables)
	}
	return j.Place.Check()
}

// ReplicaTables lists the values of Job.ReplicaTable, the default first.
var ReplicaTables = []string{"parallel", "primary"}

// environment returns Env and what tells the message library about replicas.
func (j *Job) environment() []string {
	if j.Place.Copies < 2 || j.Independent {
		return j.Env
	}
	env := append(slices.Clone(j.Env), ranks.EnvReplicaTable+"="+cmp.Or(j.ReplicaTable, ReplicaTables[0]))
	if j.SendDeterministic {
		env = append(env, ranks.EnvSendDeterministic+"=1")
	}
	return env
}

// enough reports whether hosts would do for the job, so that not all others need to be waited for.
func (j *Job) enough(hosts []Host) bool {
	if j.Profile != nil || len(j.Hosts) > 0 {
		return false // each one may matter
	}
	need, room := j.Place.Processes(), 0
	for _, h := range hosts {
		if h.Jobs > 0 {
			room += min(h.Processes, j.Place.Ranks)
		}
	}
	if j.strategy() == (allocate.Spread{}).Name() {
		return len(hosts) >= need && room >= need
	}
	return len(hosts) >= j.Place.Copies && room >= need
}

// strategy returns the name of the strategy, if one places the job.
func (j *Job) strategy() string { return cmp.Or(j.Strategy, allocate.DefaultStrategy(j.Place)) }

// groups returns the line by which the processes learn their groups.
func (j *Job) groups() string {
	if j.Profile == nil {
		return j.Groups.String()
	}
	var l jobgroups.Layout
	for _, g := range j.Profile.Groups {
		l = append(l, jobgroups.Group{Name: g.Name, Count: g.Processes})
	}
	return l.String()
}

// Placed lists the processes of a host.
type Placed struct {
	Node      overlay.NodeID
	Processes []allocate.Process
}

// Result is the result of a job.
type Result struct {
	Places []Placed // in the order of the plan
	Staged int64    // bytes of files that had to be sent
	Hosts  int      // asked

	// Sources has for each rank the host from which files were fetched: that of its lowest replica that
	// exited with status 0, or of its lowest if none did. Independent replicas are all fetched.
	Sources map[int]overlay.NodeID
}

// Progress is a step of a submission. Step is one word; it determines which numbers are set.
type Progress struct {
	Step    string        // listing, measuring, waiting, booking, staging, starting, running, broken, back, died, joined, diverged, ended
	Have    int           // ranks with room, measured paths, staged hosts, or processes that ended
	Need    int           // of this many
	Sent    int64         // staging: bytes
	Missing int64         // staging: total bytes to send, as far as known
	Left    time.Duration // waiting: 0 is without a bound
	Who     string        // which hosts or sites; died, joined, diverged: which process, and how
}

// String describes the step.
func (p Progress) String() string {
	switch p.Step {
	case "listing":
		return "asking which hosts there are"
	case "measuring":
		return fmt.Sprintf("measuring the bandwidth between sites: %d of %d", p.Have, p.Need)
	case "waiting":
		if p.Left == 0 {
			return fmt.Sprintf("waiting for %s", p.Who)
		}
		return fmt.Sprintf("%d/%d ranks, waiting for %s: %d s left", p.Have, p.Need, p.Who, int((p.Left+time.Second-1)/time.Second))
	case "booking":
		return fmt.Sprintf("booking: %d of %d hosts answered", p.Have, p.Need)
	case "staging":
		return fmt.Sprintf("staging: %d of %d hosts have all files; %s of %s sent", p.Have, p.Need, bytesText(p.Sent), bytesText(p.Missing))
	case "starting":
		return fmt.Sprintf("grid: starting %d processes on %s", p.Need, p.Who)
	case "running":
		return fmt.Sprintf("%d processes run", p.Need)
	case "broken":
		return fmt.Sprintf("%s cannot be reached; it is tried again for %d s", p.Who, int(p.Left/time.Second))
	case "back":
		return p.Who + " can be reached again"
	case "died", "joined", "diverged":
		return p.Who
	}
	return fmt.Sprintf("%d of %d processes have ended", p.Have, p.Need)
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
