// Package oracle is a second opinion on which techniques can connect two kinds
// of site: what probes of the lab's presets found, one pair of firewalls at a
// time, before any daemon existed. It is data. It does not know the broker's
// rules, profiles or plans, so that these can be held against it, and it keeps
// no state.
//
// The measurements used bare sockets between network namespaces, 10 ms apart;
// every success carried 200 kB both ways. The birthday technique, which works
// against some symmetric NATs, is left out on purpose: it looks like scanning.
package oracle

import (
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Set is a set of techniques.
type Set uint16

// Of returns the set of the techniques given.
func Of(techniques ...overlay.Technique) Set {
	var s Set
	for _, t := range techniques {
		s |= 1 << t
	}
	return s
}

// Has reports whether t is in the set.
func (s Set) Has(t overlay.Technique) bool { return s&(1<<t) != 0 }

// Without returns the set without t.
func (s Set) Without(t overlay.Technique) Set { return s &^ (1 << t) }

// Techniques lists the set in order of preference.
func (s Set) Techniques() []overlay.Technique {
	var list []overlay.Technique
	for _, t := range overlay.Techniques() {
		if s.Has(t) {
			list = append(list, t)
		}
	}
	return list
}

// String lists the techniques' names: "simultaneous-open, hole-punching".
func (s Set) String() string {
	var names []string
	for _, t := range s.Techniques() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// Pair is what is known of an asker's site and a target's. The relay is in
// neither set: it always works. What is in neither set does not work.
type Pair struct {
	// Works holds the techniques that connect the two without a relay, with
	// CAP_NET_RAW at both ends for Traversing.
	Works Set

	// Unsettled holds techniques of which the measurements say nothing, or now this
	// and now that, and punching where datagrams are throttled to less than any
	// relay carries. They count for nothing when a direct path is asked for.
	Unsettled Set
}

// Unprivileged returns what is left without CAP_NET_RAW.
func (p Pair) Unprivileged() Pair {
	return Pair{p.Works.Without(overlay.Traversing), p.Unsettled.Without(overlay.Traversing)}
}

// Direct reports whether any path without a relay is known.
func (p Pair) Direct() bool { return p.Works != 0 }

// noRoute is the prefix of a kind of site whose nodes have no route out.
const noRoute = "no-route/"

// Between says what is known of processes at a site of one kind, a preset of the
// lab, that ask for processes at a site of another. A gateway that acts for nodes
// without a route out has the access of its site. Unknown presets are an error.
func Between(asker, target string) (Pair, error) {
	a, err := find(asker)
	if err != nil {
		return Pair{}, err
	}
	b, err := find(target)
	if err != nil {
		return Pair{}, err
	}
	return look(a, b), nil
}

// OverIPv6 is Between for processes that have nothing but IPv6. No gateway
// translates that, and the rules that judge IPv4 judge it too, so that the
// measurements tell of it. Kinds of site without IPv6 are an error.
func OverIPv6(asker, target string) (Pair, error) {
	a, err := findSix(asker)
	if err != nil {
		return Pair{}, err
	}
	b, err := findSix(target)
	if err != nil {
		return Pair{}, err
	}
	return look(a, b), nil
}

// look asks the tables about two kinds.
func look(a, b kind) Pair {
	var p Pair
	if a.shared && b.shared {
		return p
	}
	add := func(t overlay.Technique, works bool) {
		if works {
			p.Works |= Of(t)
		}
	}
	add(overlay.Direct, dials(a, b) && in(b, anyPort))
	add(overlay.PortRange, dials(a, b) && in(b, somePorts))
	add(overlay.Reversed, dials(b, a))
	six := a.ipv6 && b.ipv6
	add(overlay.SimultaneousOpen, opens(a, b) || six)
	slow := a.slow || b.slow
	add(overlay.HolePunching, punches(a, b) && !slow)
	if punches(a, b) && slow {
		p.Unsettled |= Of(overlay.HolePunching)
	}
	switch {
	case six || traverses(a, b) == yes:
		add(overlay.Traversing, true)
	case traverses(a, b) == unsettled:
		p.Unsettled |= Of(overlay.Traversing)
	}
	if a.unscaled || b.unscaled { // they connect, and are given up where they carry next to nothing
		crossing := Of(overlay.SimultaneousOpen) | Of(overlay.Traversing)
		p.Unsettled |= p.Works & crossing
		p.Works &^= crossing
	}
	return p
}

// kind is one kind of site, as far as the tables tell kinds apart.
type kind struct {
	letter   byte // its row and column in the tables
	dgram    byte // the same for datagrams, where that is another; 0 if not
	udp      bool // lets datagrams through; false takes from the tables what they grant
	slow     bool // throttles datagrams
	ipv6     bool // has IPv6 addresses behind a stateful filter, and a NAT for IPv4
	hidden   bool // nodes have no route out: their gateway acts for them
	unscaled bool // takes window scaling out of SYNs, without which those that cross make a connection of no use
	shared   bool // all sites of the kind are behind one NAT, which leads none of them to another
}

// kinds gives each preset of the lab its letter. Presets that the tables do not
// name have the letter of the one whose rules they share.
var kinds = map[string]kind{
	"open":                {letter: 'O', udp: true},
	"syn-drop":            {letter: 'S', udp: true},
	"syn-reset":           {letter: 'R', udp: true},
	"stateful":            {letter: 'F', udp: true},
	"stateful-reject":     {letter: 'J', udp: true},
	"stateful-strict":     {letter: 'X', udp: true},
	"stateful-strict-new": {letter: 'Y', udp: true},
	"stateful-noloose":    {letter: 'L', udp: true},
	"port-range":          {letter: 'P', udp: true},
	"nat":                 {letter: 'N', udp: true},
	"nat-answers":         {letter: 'I', udp: true},
	"nat-random":          {letter: 'E', udp: true},
	"nat-fullcone":        {letter: 'C', udp: true},
	"nat-1to1":            {letter: 'D', udp: true},
	"nat-symmetric":       {letter: 'M', udp: true},
	"no-udp":              {letter: 'U'},
	"egress-443":          {letter: 'H'},
	"http-proxy":          {letter: 'Z'},

	"mtu-1400":           {letter: 'F', udp: true}, // handshakes are small; a QUIC packet fits as well
	"nat-double":         {letter: 'N', udp: true}, // two NATs that keep ports are one
	"udp-slow":           {letter: 'F', udp: true, slow: true},
	"nat-ipv6":           {letter: 'N', udp: true, ipv6: true},
	"nat-symmetric-ipv6": {letter: 'M', udp: true, ipv6: true},
	"syn-drop-no-udp":    {letter: 'S'},
}

// unforeseen gives the kinds that were met later the letter of the one that they
// are like to the techniques: what is wrong with them is beside their firewall's
// rules for addresses and ports, but for those that let out only what looks like
// TLS, which is the relay's affair.
var unforeseen = map[string]kind{
	"tls-only-443":              {letter: 'Z'},
	"connect-tls-only":          {letter: 'Z'},
	"wscale-stripped":           {letter: 'F', udp: true, unscaled: true},
	"options-stripped":          {letter: 'F', udp: true, unscaled: true},
	"mtu-1300-blackhole":        {letter: 'F', udp: true},
	"cgnat-over-stateful":       {letter: 'N', udp: true},
	"nat-tcp-symmetric-udp-eim": {letter: 'M', dgram: 'N', udp: true},
	"two-uplinks":               {letter: 'F', udp: true},
	"asymmetric":                {letter: 'F', udp: true},
	"policed-udp":               {letter: 'F', udp: true, slow: true},
	"udp-dies":                  {letter: 'F', udp: true, slow: true},
	"idle-20s":                  {letter: 'F', udp: true},
	"syn-rate-5":                {letter: 'F', udp: true},
	"same-nat-no-hairpin":       {letter: 'N', udp: true, shared: true},
	"overlapping-subnets":       {letter: 'N', udp: true},
	"ipv6-only":                 {letter: 'Z', ipv6: true},
}

// find returns the kind of a preset.
func find(preset string) (kind, error) {
	base, hidden := strings.CutPrefix(preset, noRoute)
	k, ok := kinds[base]
	if !ok {
		k, ok = unforeseen[base]
	}
	if !ok {
		return k, fmt.Errorf("no measurement tells of preset %q", preset)
	}
	k.hidden = hidden
	if hidden && k.letter == 'C' {
		k.letter = 'N' // its map leads to the gateway itself, which filters by endpoint
	}
	return k, nil
}

// findSix returns the kind of a preset as it is to IPv6.
func findSix(preset string) (kind, error) {
	k, err := find(preset)
	switch {
	case err != nil:
		return k, err
	case k.ipv6:
		k.letter, k.ipv6 = 'F', false
	case in(k, translates):
		return k, fmt.Errorf("preset %q translates addresses and has no IPv6", preset)
	}
	return k, nil
}

// in reports whether the kind is one of the letters.
func in(k kind, letters string) bool { return strings.IndexByte(letters, k.letter) >= 0 }
