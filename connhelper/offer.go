package connhelper

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/overlay"
)

// OfferSettings are what the node's owner allows to jobs that are launched from anywhere in the
// grid.
type OfferSettings struct {
	Jobs      int         `yaml:"jobs" default:"0" min:"0" max:"10000" example:"1" help:"Jobs at a time, including booked ones. 0 offers nothing: the node is listed but accepts no job. With more than 0, allow must say who may run jobs."`
	Processes int         `yaml:"processes" default:"0" min:"0" max:"1048576" help:"Processes of one job at a time. 0 means the number of the node's cores."`
	Memory    daemon.Size `yaml:"memory" default:"0B" min:"0B" help:"Memory for all jobs together, of which each job takes what its submitter requests. 0B means the node's memory."`
	CPU       float64     `yaml:"cpu" default:"0" min:"0" max:"1000000" help:"Cores for all jobs together, of which each job takes what its submitter requests; 0.5 is half of one. 0 means the number of the node's cores."`
	Power     int         `yaml:"power" default:"0" min:"0" max:"1073741824" help:"How fast the node computes with all its cores, in millions of multiplications and additions a second: jobs with a graph put their heavy tasks on fast nodes. 0 means that the helper measures it, in 0.2 s, when it starts."`
	Allow     []OfferRule `yaml:"allow" help:"Who may run jobs here: submitters that one of these rules matches. Required if jobs is above 0."`
	Deny      []OfferRule `yaml:"deny" help:"Who may not run jobs here, even if allow matches."`
}

// OfferRule matches when every field that is set matches.
type OfferRule struct {
	Site      string       `yaml:"site" help:"The site from which the job is launched."`
	Addresses netip.Prefix `yaml:"addresses" help:"A network that contains the source address of the request. Through a relay or a gateway the address is not known, and the rule does not match."`
	Identity  string       `yaml:"identity" help:"The user and node that launch the job, as USER@SITE/NODE: the node is authenticated, and vouches for its user. An asterisk stands for any part of a name, as in alice@*/*."`
}

// Check checks that the keys of a rule fit together.
func (r OfferRule) Check() error {
	var errs []error
	if r == (OfferRule{}) {
		errs = append(errs, daemon.Wrong("site", "a rule must have a condition: give its site, its addresses or its identity"))
	}
	if r.Site != "" {
		if err := overlay.CheckName("site", r.Site); err != nil {
			errs = append(errs, daemon.Wrong("site", "%v", err))
		}
	}
	if r.Identity != "" {
		if err := checkIdentity(r.Identity); err != nil {
			errs = append(errs, daemon.Wrong("identity", "%v", err))
		}
	}
	return errors.Join(errs...)
}

func checkIdentity(s string) error {
	user, node, _ := strings.Cut(s, "@")
	if site, name, ok := strings.Cut(node, "/"); user == "" || site == "" || name == "" || !ok {
		return errors.New("want USER@SITE/NODE, such as alice@sitea/n1 or alice@*/*")
	}
	if _, err := path.Match(s, ""); err != nil {
		return fmt.Errorf("a pattern of which nothing can be made: %w", err)
	}
	return nil
}

// ExampleOffer returns an offer to the users of one site, as a line of a helper's settings.
func ExampleOffer(site overlay.SiteID) string {
	return fmt.Sprintf("offer: {jobs: 1, allow: [{site: %s}]}", site)
}

// Check checks that the keys fit together.
func (s OfferSettings) Check() error {
	if s.Jobs > 0 && len(s.Allow) == 0 {
		return daemon.Wrong("allow", "jobs is %d, but no submitter is allowed; set allow, for example allow: [{site: sitea}], or for every member of the grid allow: [{identity: \"*@*/*\"}]", s.Jobs)
	}
	return nil
}

// Advice implements daemon.Adviser.
func (c Config) Advice() daemon.Faults {
	switch {
	case c.Offer.Jobs > 0 && c.NodeService.Starter == "":
		return daemon.Faults{{Key: "node_service.starter", Err: errors.New("none, so this helper accepts only jobs of its own user, and none at all if it runs in a system account, such as isthmus of the packages; in that case start isthmus-starter (systemctl enable --now isthmus-starter) and write\n" +
			"node_service: {starter: " + starter.DefaultSocket + "}")}}
	case c.Offer.Jobs > 0:
		return nil
	}
	return daemon.Faults{{Key: "offer.jobs", Err: fmt.Errorf("0, so this node accepts no job; to let it accept one job at a time from users of its own site, write\n%s", ExampleOffer(c.site()))}}
}

// site returns the site that the node's certificate names, if it can be read here, otherwise an
// example.
func (c Config) site() overlay.SiteID {
	text, err := os.ReadFile(string(c.TLS.Cert))
	if err != nil {
		return "sitea"
	}
	if block, _ := pem.Decode(text); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			if id, err := control.IdentityOf(cert); err == nil && id.Site != "" {
				return id.Site
			}
		}
	}
	return "sitea"
}

// Offer returns what the settings offer on this machine, for the list of hosts.
func (s OfferSettings) Offer() offer.Offer {
	if s.Jobs == 0 {
		return offer.Offer{}
	}
	o := offer.Offer{Jobs: s.Jobs, Processes: s.Processes, Memory: int64(s.Memory), CPU: int(math.Round(s.CPU * 1000)), Power: s.Power}
	if o.Processes == 0 {
		o.Processes = runtime.NumCPU()
	}
	if o.Memory == 0 {
		o.Memory = machineMemory()
	}
	if o.CPU == 0 {
		o.CPU = runtime.NumCPU() * 1000
	}
	if o.Power == 0 {
		o.Power = nodePower()
	}
	return o
}

// Policy returns what the settings allow to whom on this machine, for the node service.
func (s OfferSettings) Policy() reserve.Policy {
	o := s.Offer()
	return reserve.Policy{
		Jobs: o.Jobs, Processes: o.Processes, Memory: o.Memory, CPU: o.CPU,
		Allow: rules(s.Allow), Deny: rules(s.Deny),
	}
}

func rules(from []OfferRule) (to []reserve.Rule) {
	for _, r := range from {
		to = append(to, reserve.Rule{Identity: r.Identity, Site: overlay.SiteID(r.Site), Addresses: r.Addresses})
	}
	return to
}
