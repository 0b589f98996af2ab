// Package oracle is a second opinion on which techniques can connect two kinds of site: what probes
// of the lab's presets found, one pair of firewalls at a time, before any daemon existed. It is
// data. It does not use the broker's rules, profiles or plans, so that these can be compared with
// it, and it keeps no state.
//
// The measurements used bare sockets between network namespaces, 10 ms apart; every success carried
// 200 kB both ways. The birthday technique, which works against some symmetric NATs, is
// deliberately omitted: it looks like scanning.
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

// Pair is what is known of an asker's site and a target's. The relay is in neither set: it always
// works. Techniques in neither set do not work.
type Pair struct {
	// Works holds the techniques that connect the two without a relay, with
	// CAP_NET_RAW at both ends for Traversing.
	Works Set

	// Unsettled holds techniques that the measurements do not cover, or with varying results, and
	// punching where datagrams are throttled to less than any relay carries. They do not count as a
	// direct path.
	Unsettled Set
}

// Unprivileged returns the pair without the techniques that need CAP_NET_RAW.
func (p Pair) Unprivileged() Pair {
	return Pair{p.Works.Without(overlay.Traversing), p.Unsettled.Without(overlay.Traversing)}
}

// Direct reports whether any path without a relay is known.
func (p Pair) Direct() bool { return p.Works != 0 }

// noRoute is the prefix of a kind of site whose nodes have no route out.
const noRoute = "no-route/"

// Between returns what is known of processes at a site of one kind, a preset of the lab, that ask
// for processes at a site of another. A gateway that acts for nodes without a route out has the
// access of its site. Unknown presets are an error.
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

// OverIPv6 is Between for processes that have only IPv6. No gateway translates IPv6, and the rules
// for IPv4 apply to it too, so the measurements cover it. Kinds of site without IPv6 are an error.
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

// look looks two kinds up in the tables.
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
	six := a.ipv6 && b.ipv6
	add(overlay.Direct, dials(a, b) && in(b, anyPort) || six && b.open6 && !b.hidden)
	add(overlay.PortRange, dials(a, b) && in(b, somePorts))
	add(overlay.Reversed, dials(b, a) || six && a.open6 && !a.hidden)
	add(overlay.SimultaneousOpen, opens(a, b) || six)
	slow := a.slow || b.slow
	add(overlay.HolePunching, (punches(a, b) || six) && !slow)
	if (punches(a, b) || six) && slow {
		p.Unsettled |= Of(overlay.HolePunching)
	}
	switch {
	case six || traverses(a, b) == yes:
		add(overlay.Traversing, true)
	case traverses(a, b) == unsettled:
		p.Unsettled |= Of(overlay.Traversing)
	}
	if a.split || b.split {
		crossing := Of(overlay.SimultaneousOpen) | Of(overlay.Traversing)
		p.Works, p.Unsettled = p.Works&^crossing, p.Unsettled&^crossing
	}
	if a.unscaled || b.unscaled { // they connect, and are abandoned because they carry almost nothing
		crossing := Of(overlay.SimultaneousOpen) | Of(overlay.Traversing)
		p.Unsettled |= p.Works & crossing
		p.Works &^= crossing
	}
	return p
}

// kind is one kind of site, as far as the tables distinguish kinds.
type kind struct {
	letter   byte // its row and column in the tables
	dgram    byte // the same for datagrams, if different; otherwise 0
	udp      bool // lets datagrams through; false overrides the tables
	slow     bool // throttles datagrams
	ipv6     bool // has IPv6 addresses behind a stateful filter, and a NAT for IPv4
	open6    bool // with ipv6: the filter lets everything in over IPv6
	hidden   bool // nodes have no route out: their gateway acts for them
	unscaled bool // removes window scaling from SYNs, without which connections by crossing SYNs are useless
	split    bool // a middlebox ends nodes' connections and makes others of its own, so that no SYNs of two nodes cross
	shared   bool // all sites of the kind are behind one NAT, which does not hairpin
}

// kinds gives each preset of the lab its letter. Presets that are not in the tables have the letter
// of the one whose rules they share.
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
	"nat-double":         {letter: 'N', udp: true}, // two NATs that keep ports act like one
	"udp-slow":           {letter: 'F', udp: true, slow: true},
	"nat-ipv6":           {letter: 'N', udp: true, ipv6: true},
	"nat-symmetric-ipv6": {letter: 'M', udp: true, ipv6: true},
	"syn-drop-no-udp":    {letter: 'S'},
}

// unforeseen gives the kinds met later the letter of the one that is equivalent for the techniques:
// their problems lie outside their firewall's rules for addresses and ports, except for those that
// let out only what looks like TLS, which concerns the relay.
var unforeseen = map[string]kind{
	"tls-only-443":              {letter: 'Z'},
	"connect-tls-only":          {letter: 'Z'},
	"wscale-stripped":           {letter: 'F', udp: true, unscaled: true},
	"options-stripped":          {letter: 'F', udp: true, unscaled: true},
	"mtu-1300-blackhole":        {letter: 'F', udp: true},
	"mtu-1000-blackhole":        {letter: 'F'},            // no packet of QUIC fits
	"nat-64-ports":              {letter: 'N', udp: true}, // what one local port has got it keeps for all destinations
	"flows-1mb":                 {letter: 'F', udp: true},
	"cgnat-over-stateful":       {letter: 'N', udp: true},
	"nat-tcp-symmetric-udp-eim": {letter: 'M', dgram: 'N', udp: true},
	"split-tcp":                 {letter: 'M', dgram: 'N', udp: true, split: true},
	"two-uplinks":               {letter: 'F', udp: true},
	"asymmetric":                {letter: 'F', udp: true},
	"policed-udp":               {letter: 'F', udp: true, slow: true},
	"udp-dies":                  {letter: 'F', udp: true, slow: true},
	"idle-20s":                  {letter: 'F', udp: true},
	"syn-rate-5":                {letter: 'F', udp: true},
	"nat-64-sessions":           {letter: 'N', udp: true},
	"same-nat-no-hairpin":       {letter: 'N', udp: true, shared: true},
	"overlapping-subnets":       {letter: 'N', udp: true},
	"ipv6-only":                 {letter: 'Z', ipv6: true},

	"ipv6-stateful-nat-symmetric": {letter: 'M', udp: true, ipv6: true},
	"ipv6-open-nat":               {letter: 'N', udp: true, ipv6: true, open6: true},
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

// findSix returns the kind of a preset for IPv6.
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
