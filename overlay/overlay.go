// Package overlay defines the vocabulary of Isthmus: the names of sites, nodes, jobs and processes,
// what a site's firewall lets through, the techniques by which two processes connect, the plan that
// a broker makes of them, and the roles that the daemons play for each other, as interfaces.
//
// It knows no socket, clock, file or encoding; everything here is a value or an interface. Every
// other package may import it, and it imports none of them.
package overlay

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"
)

// MaxNameLen is the longest site, node, proxy or job name, in bytes. Names are encoded after a
// one-byte length and in certificates.
const MaxNameLen = 63

// CheckName returns what is wrong with a site, node, proxy or job name, or nil. A name is 1 to
// MaxNameLen bytes of a-z, 0-9, '-', '_' or '.', and starts with a letter or a digit, so that it
// can appear in a host name, a file name, a URI and a log line without quoting.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s name is empty", what)
	}
	if len(name) > MaxNameLen {
		return fmt.Errorf("%s name of %d bytes, at most %d are allowed: it starts with %.20q", what, len(name), MaxNameLen, name)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("%s name %q: byte %d is %q; allowed are a-z, 0-9 and, after the first, '-', '_' and '.'", what, name, i, c)
		}
	}
	return nil
}

// SiteID names a site: hosts behind one gateway, under one admin.
type SiteID string

// NodeID names a host of a site. People read and write it as "node@site", programs as "site/node".
type NodeID struct {
	Site SiteID
	Name string
}

// String returns "site/node".
func (n NodeID) String() string { return n.Key() }

// Key returns "site/node", the form in certificates, files and messages: daemons of all versions
// know it, and names sort by site.
func (n NodeID) Key() string { return string(n.Site) + "/" + n.Name }

// ParseNodeID parses the forms of NodeID.String and NodeID.Key.
func ParseNodeID(s string) (NodeID, error) {
	node, site, ok := strings.Cut(s, "@")
	if !ok {
		site, node, ok = strings.Cut(s, "/")
	}
	if !ok {
		return NodeID{}, fmt.Errorf("node %q: want NODE@SITE, such as n1@paris", s)
	}
	if err := cmp.Or(CheckName("site", site), CheckName("node", node)); err != nil {
		return NodeID{}, fmt.Errorf("node %q: %w; want NODE@SITE, such as n1@paris", s, err)
	}
	return NodeID{SiteID(site), node}, nil
}

// JobID names a job: the name its user gave, '-', and 32 hexadecimal digits that only a holder of
// the job's key can claim (package jobkey). It has at most MaxJobIDLen bytes. The job over which a
// node's service is reached has an id of a form of its own, "node:SITE:NODE", which no
// user's job can have.
type JobID string

// MaxJobIDLen is the longest JobID in bytes.
const MaxJobIDLen = len(servicePrefix) + MaxNameLen + 1 + MaxNameLen

// servicePrefix begins the id of a node service's job. No name has a colon.
const servicePrefix = "node:"

// serviceName is the name of these jobs, in the policies of sites.
const serviceName = "node-service"

// ServiceJob returns the id of the job over which a node's service is reached.
func ServiceJob(node NodeID) JobID {
	return JobID(servicePrefix + string(node.Site) + ":" + node.Name)
}

// ServiceNode returns the node whose service is reached over the job; ok is false
// for every other job.
func (id JobID) ServiceNode() (node NodeID, ok bool) {
	name, ok := strings.CutPrefix(string(id), servicePrefix)
	if !ok {
		return NodeID{}, false
	}
	site, name, ok := strings.Cut(name, ":")
	if !ok || CheckName("site", site) != nil || CheckName("node", name) != nil {
		return NodeID{}, false
	}
	return NodeID{SiteID(site), name}, true
}

// CheckJobID returns what is wrong with a job id, or nil.
func CheckJobID(id JobID) error {
	if _, ok := id.ServiceNode(); ok {
		return nil
	}
	name, digest, ok := cutLast(string(id), '-')
	if !ok || len(digest) != 32 || strings.Trim(digest, "0123456789abcdef") != "" {
		return fmt.Errorf("job id %.110q: want NAME-<32 hexadecimal digits>", string(id))
	}
	return CheckJobName(name)
}

// CheckJobName returns why a user's job cannot have the name, or nil.
func CheckJobName(name string) error {
	if name == serviceName {
		return fmt.Errorf("job name %q is that of node services' own jobs; choose another", name)
	}
	return CheckName("job", name)
}

// Name returns the part of the id that the user chose; "node-service" for the job of a
// node service.
func (id JobID) Name() string {
	if _, ok := id.ServiceNode(); ok {
		return serviceName
	}
	name, _, _ := cutLast(string(id), '-')
	return name
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// ProcessName names one process of a job by its rank in the job's world. It is the key under which
// an access point is registered and looked up.
type ProcessName struct {
	Job  JobID
	Rank uint32
}

// String returns "rank R of job J". The job over which a node's service is reached is no user's: there
// it names the service, which is rank 0, or a caller.
func (p ProcessName) String() string {
	node, isService := p.Job.ServiceNode()
	switch {
	case !isService:
		return fmt.Sprintf("rank %d of job %s", p.Rank, p.Job)
	case p.Rank == 0:
		return fmt.Sprintf("the node service of %v", node)
	}
	return fmt.Sprintf("caller %d of the node service of %v", p.Rank, node)
}

// Generation orders the restarts of a process: a rank that was started again has a greater one.
// What was learned about an older generation is stale. A node's helper assigns one to each process
// that registers: the time, in microseconds since 1970 (Unix time). The process presents it to its
// next helper.
type Generation uint64

// NewGeneration returns the generation of a process that registers now, after one
// of generation old; 0 is none.
func NewGeneration(now time.Time, old Generation) Generation {
	return max(Generation(max(now.UnixMicro(), 1)), old+1)
}

// Check fails with ErrForbidden for a generation that no helper can have assigned yet, by a clock
// that is no more than MaxAhead ahead: it would lock out all later generations of the process.
func (g Generation) Check(now time.Time) error {
	latest := now.Add(MaxAhead)
	if g <= Generation(max(latest.UnixMicro(), 0)) {
		return nil
	}
	if g > math.MaxInt64 {
		return fmt.Errorf("%w: generation %d is no time; a node's helper gives out the time in microseconds", ErrForbidden, g)
	}
	return fmt.Errorf("%w: generation %d is of %s: %s",
		ErrForbidden, g, time.UnixMicro(int64(g)).UTC().Format(time.RFC3339), ClocksDiffer("this host", "the node", time.UnixMicro(int64(g)).Sub(now)))
}

// AccessPoint says where a process can be reached: the listener of its node's helper, or of its
// site's frontal when the node has no route out.
type AccessPoint struct {
	Process    ProcessName
	Generation Generation
	Node       NodeID
	Local      netip.AddrPort // for processes of the same site; invalid when the site's port range was full
	Public     netip.AddrPort // for other sites; invalid when none can connect
	Public6    netip.AddrPort // the same over IPv6, where Public is of IPv4 or invalid
	Principal  Principal      // on whose behalf the process works

	// Grant is what the process presented to prove that it works for a user of the grid (package
	// grant), on its way to the broker. No other daemon gets it.
	Grant string

	// Until is when the grant ends, set by the broker: no new links to or from the process are made
	// afterwards. It is zero without a grant.
	Until time.Time

	// Proof is the job's signature of the point's claims about the process (package jobkey), on its
	// way to the broker.
	Proof string
}

// Check returns what is wrong with the access point, or nil.
func (a AccessPoint) Check() error {
	if err := CheckJobID(a.Process.Job); err != nil {
		return err
	}
	if err := CheckName("site", string(a.Node.Site)); err != nil {
		return err
	}
	if err := CheckName("node", a.Node.Name); err != nil {
		return err
	}
	return a.Principal.Check()
}
