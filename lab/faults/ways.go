package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A way is one technique between two kinds of site, with one node each.
type way struct {
	name      string
	technique overlay.Technique // the best that the two sites have
	from, to  string            // presets; the process at from dials and sends
	via       bool              // the asker's gateway carries the data
	tracked   bool              // a firewall on the path tracks connections,
	strict    bool              // and drops packets of connections that it has forgotten
	datagrams bool              // the carrier is not a TCP connection on the network

	forbidden    []overlay.Technique // at both sites
	unprivileged bool
}

// onlyRelay lists the techniques that open a path through closed firewalls, in order of preference.
var onlyRelay = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}

// ways covers all techniques, and a node without a route out. A technique that races with a way's
// own, and may connect sooner on a long path, is forbidden.
var ways = []way{
	{name: "direct", technique: overlay.Direct, from: "open", to: "open"},
	{name: "port-range", technique: overlay.PortRange, from: "stateful-noloose", to: "port-range", tracked: true, strict: true},
	{name: "reversed", technique: overlay.Reversed, from: "open", to: "stateful-noloose", tracked: true, strict: true},
	{name: "simultaneous-open", technique: overlay.SimultaneousOpen, from: "stateful", to: "stateful", tracked: true, forbidden: onlyRelay[1:]},
	{name: "traversing", technique: overlay.Traversing, from: "syn-drop", to: "syn-drop", forbidden: onlyRelay[2:]},
	{name: "hole-punching", technique: overlay.HolePunching, from: "syn-drop", to: "syn-drop", datagrams: true, unprivileged: true},
	{name: "relay", technique: overlay.Relay, from: "stateful-noloose", to: "stateful", tracked: true, strict: true, forbidden: onlyRelay},
	{name: "gateway", technique: overlay.SimultaneousOpen, from: "no-route/stateful", to: "stateful", tracked: true, via: true, forbidden: onlyRelay[1:]},
}

// Names of the sites and hosts of every cell's lab.
const (
	askerSite  = "asker"
	targetSite = "target"
	askerNode  = askerSite + "/n1"
	targetNode = targetSite + "/n1"
	brokerHost = "public/broker"
	proxy1     = "public/p1"
	proxy2     = "public/p2"
)

// sites returns the sites of the way's lab, the asker's with one uplink or two.
func (w way) sites(multihomed bool) []lab.Site {
	return []lab.Site{
		{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "p1", "p2"}},
		{Name: askerSite, Preset: w.from, Nodes: []string{"n1"}, Second: multihomed},
		{Name: targetSite, Preset: w.to, Nodes: []string{"n1"}},
	}
}

// profile changes the declared profile of a site so that the way's technique is the best that it
// has.
func (w way) profile(_ string, p overlay.SiteProfile) overlay.SiteProfile {
	p.Forbidden = w.forbidden
	if w.unprivileged {
		p.Privileged = false
	}
	return p
}

// Techniques returns the names of the techniques that a run can break.
func Techniques() []string {
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
}

// pick returns the elements of all whose names are in list, or all for an empty list.
func pick[T any](what string, all []T, name func(T) string, list []string) ([]T, error) {
	if len(list) == 0 {
		return all, nil
	}
	var picked []T
	for _, want := range list {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == want })
		if i < 0 {
			var known []string
			for _, t := range all {
				known = append(known, name(t))
			}
			return nil, fmt.Errorf("unknown %s %q; known are %s", what, want, strings.Join(known, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}
