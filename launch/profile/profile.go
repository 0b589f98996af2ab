package profile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The bounds of a profile. Readers of profiles allocate by them.
const (
	MaxFile      = 1 << 20 // bytes of its text
	MaxGroups    = 256
	MaxProcesses = 1 << 20 // of all groups together
	MaxWords     = 4096    // of each list of the program
)

// Profile is what a job asks for. The reader of a profile owns its slices.
type Profile struct {
	Job     string // must pass overlay.CheckName; empty: the caller chooses
	Program Program
	Groups  []Group // ranks are numbered in this order
	Between []Between
	Similar []Similar

	// Ignored describes the parts of the text that were ignored, one sentence each.
	Ignored []string
}

// Program is what every process runs. All of it may be empty: the command line can specify it
// instead. Paths are relative to the job's folder.
type Program struct {
	Path                  string
	Args                  []string
	Env                   []string // "NAME=value", in order
	Stdin, Stdout, Stderr string   // files; empty: the submitter's
	Inputs, Outputs       []string // files to stage before and to fetch after
}

// Group is a set of processes that the program sees as one group, by its name.
type Group struct {
	Name      string
	Processes int

	// The requirements of each process on its host; zero Speed and Memory require nothing.
	Cores  int       // at least 1
	Speed  Frequency // of each core, at least
	Memory Bytes     // at least

	// Sites bounds the sites that the group may run on; 0 is any number. If the text does not set
	// it, it is any number if Inside has a limit, else one.
	Sites int

	Inside Network // between any two of its processes on different hosts
}

// Network holds limits on the link between two hosts. Zero fields limit nothing.
type Network struct {
	Latency   time.Duration // of a round trip, at most
	Bandwidth Rate          // in each direction, at least
}

// Limited reports whether n limits anything.
func (n Network) Limited() bool { return n != Network{} }

// tighten returns limits that are kept where both n and m are.
func (n Network) tighten(m Network) Network {
	if n.Latency == 0 || m.Latency != 0 && m.Latency < n.Latency {
		n.Latency = m.Latency
	}
	n.Bandwidth = max(n.Bandwidth, m.Bandwidth)
	return n
}

// Between limits the links between any process of one group and any of another on another host.
type Between struct {
	A, B int // indices of Profile.Groups; A < B
	Network
}

// Similar requires that groups have about the same computing power, which is the sum over their
// processes of cores times speed.
type Similar struct {
	Groups []int   // indices of Profile.Groups, ascending; two or more
	Within Percent // by how much the weakest group's power may be below the strongest's
}

// Processes returns the number of processes of the job.
func (p *Profile) Processes() (n int) {
	for i := range p.Groups {
		n += p.Groups[i].Processes
	}
	return n
}

// Check validates a profile that a program made or changed. Profiles that Read returns without an
// error pass.
func (p *Profile) Check() error {
	r := reader{}
	r.relate(p)
	return r.err()
}

// relate reports contradictions among values that are valid by themselves.
func (r *reader) relate(p *Profile) {
	if p.Job != "" {
		if err := overlay.CheckName("job", p.Job); err != nil {
			r.wrongAt("job", "%w", err)
		}
	}
	r.environment(p.Program.Env)
	if n := len(p.Groups); n == 0 || n > MaxGroups {
		r.wrongAt("groups", "%d groups; want 1 to %d", n, MaxGroups)
	}
	first, total := map[string]int{}, 0
	for i, g := range p.Groups {
		key := "groups[" + strconv.Itoa(i) + "]"
		if err := overlay.CheckName("group", g.Name); err != nil {
			r.wrongAt(key+".name", "%w", err)
		} else if before, twice := first[g.Name]; twice {
			r.wrongAt(key+".name", "%q is also the name of groups[%d]; give each group its own", g.Name, before)
		} else {
			first[g.Name] = i
		}
		r.host(key, g)
		r.limits(key+".inside", g.Inside)
		total += min(max(g.Processes, 0), MaxProcesses)
	}
	if total > MaxProcesses {
		r.wrongAt("groups", "%d processes in all groups; at most %d", total, MaxProcesses)
	}
	r.pairs(p)
	r.similar(p)
}

func (r *reader) environment(env []string) {
	first := map[string]bool{}
	for _, v := range env {
		name, _, ok := strings.Cut(v, "=")
		switch {
		case !ok || name == "" || strings.Contains(v, "\x00"):
			r.wrongAt("program.env", "%q; want NAME=value", v)
		case first[name]:
			r.wrongAt("program.env", "%s is set twice", name)
		}
		first[name] = true
	}
}

func (r *reader) host(key string, g Group) {
	if g.Processes < 1 || g.Processes > MaxProcesses {
		r.wrongAt(key+".processes", "%d processes; want 1 to %d", g.Processes, MaxProcesses)
	}
	if g.Cores < 1 || g.Cores > MaxProcesses {
		r.wrongAt(key+".cores", "%d cores for a process; want 1 to %d", g.Cores, MaxProcesses)
	}
	if g.Sites < 0 {
		r.wrongAt(key+".sites", "%d sites; want 1 or more, or any", g.Sites)
	}
	if g.Speed < 0 || g.Memory < 0 {
		r.wrongAt(key, "negative request: speed %d, memory %d", g.Speed, g.Memory)
	}
}

func (r *reader) limits(key string, n Network) {
	if n.Latency < 0 || n.Bandwidth < 0 {
		r.wrongAt(key, "negative request: latency %v, bandwidth %d", n.Latency, n.Bandwidth)
	}
}

func (r *reader) pairs(p *Profile) {
	first := map[[2]int]int{}
	for i, b := range p.Between {
		key := "between[" + strconv.Itoa(i) + "]"
		pair := [2]int{b.A, b.B}
		switch before, twice := first[pair]; {
		case b.A < 0 || b.B <= b.A || b.B >= len(p.Groups):
			r.wrongAt(key, "groups %d and %d; want two of %d, the lower first", b.A, b.B, len(p.Groups))
		case twice:
			r.wrongAt(key, "%s and %s have their limits in between[%d] already", p.Groups[b.A].Name, p.Groups[b.B].Name, before)
		case !b.Limited():
			r.wrongAt(key, "limits neither latency nor bandwidth; write, for example, latency: 20ms")
		}
		first[pair] = i
		r.limits(key, b.Network)
	}
}

func (r *reader) similar(p *Profile) {
	for i, s := range p.Similar {
		key := "similar[" + strconv.Itoa(i) + "]"
		if len(s.Groups) < 2 || !slices.IsSorted(s.Groups) || len(slices.Compact(slices.Clone(s.Groups))) != len(s.Groups) ||
			s.Groups[0] < 0 || s.Groups[len(s.Groups)-1] >= len(p.Groups) {
			r.wrongAt(key+".groups", "groups %v; want two or more different ones of %d, in order", s.Groups, len(p.Groups))
		}
		if s.Within < 0 || s.Within > 100 {
			r.wrongAt(key+".power", "%v; want 0%% to 100%%", s.Within)
		}
	}
}

// A Fault is one error in a profile.
type Fault struct {
	File         string // empty: not from a file
	Line, Column int    // counted from 1; 0: the file as a whole
	Key          string // such as "groups[1].inside.latency", or an XML path
	Err          error  // what is wrong, and what to write instead
}

func (f Fault) Error() string {
	text := f.Err.Error()
	if f.Key != "" {
		text = f.Key + ": " + text
	}
	switch {
	case f.File == "":
		return "profile: " + text
	case f.Line == 0:
		return f.File + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, text)
}

// Unwrap returns the cause.
func (f Fault) Unwrap() error { return f.Err }

// Faults are all errors in a profile, in the order of the text.
type Faults []Fault

func (f Faults) Error() string { return errors.Join(f.Unwrap()...).Error() }

// Unwrap returns the single faults, for errors.Is and errors.As.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i := range f {
		errs[i] = f[i]
	}
	return errs
}
