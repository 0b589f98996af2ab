package overlay

import (
	"cmp"
	"fmt"
	"slices"
)

// Technique is a way to connect two processes of different nodes. The names
// are those of the QCG-OMPI paper where it has one. Its number goes on the wire, and says nothing of how good it is.
type Technique uint8

// The techniques.
const (
	Direct           Technique = iota + 1 // the asker dials the target
	PortRange                             // as Direct; the target's site opens a port range, its listeners bind inside
	Reversed                              // the target dials the asker and presents the connect-id it was given
	SimultaneousOpen                      // both dial at an agreed instant
	Traversing                            // the asker's SYN is carried by the broker and injected at the target
	HolePunching                          // UDP: ICE candidates, then QUIC
	Relay                                 // both dial a proxy, which joins them
)

// Kind says which ends open the connection of a technique. Code that depends only on that uses the
// kind and knows no technique by name.
type Kind uint8

// The kinds.
const (
	AskerDials  Kind = iota + 1 // the asker dials a listener of the target's site
	TargetDials                 // the target dials a listener of the asker's site
	BothDial                    // both ends send TCP segments, as they agree through the broker
	BothSend                    // the same with UDP
	ByProxy                     // both ends dial a proxy
)

// Negotiated reports whether the two ends negotiate, through the broker, how to connect: package
// coordinate carries out such a technique.
func (k Kind) Negotiated() bool { return k == BothDial || k == BothSend }

// EndToEnd reports whether the connection is TCP from one site to the other, which both sites' firewalls see, and whose addresses
// are those of its two ends.
func (k Kind) EndToEnd() bool { return k == AskerDials || k == TargetDials || k == BothDial }

// MaxTechniques bounds the numbers of techniques: arrays that have an element for each have this length.
const MaxTechniques = 32

// techniques lists all techniques, by number. A new technique needs a row here, one in the broker
// (decide.judges), one in the helper (attempts) and perhaps one in package coordinate; see CONTRIBUTING.md.
var techniques = [MaxTechniques]struct {
	name string
	kind Kind
	rank uint8 // in the order of preference, from 1 on
}{
	Direct:           {"direct", AskerDials, 10},
	PortRange:        {"port-range", AskerDials, 20},
	Reversed:         {"reversed", TargetDials, 30},
	SimultaneousOpen: {"simultaneous-open", BothDial, 40},
	Traversing:       {"traversing", BothDial, 50},
	HolePunching:     {"hole-punching", BothSend, 60},
	Relay:            {"relay", ByProxy, 70},
}

// Register adds a technique to those above; rank is its place in the order of preference, in which Direct has 10, the next 20,
// and so on to Relay. It is for tests of what must hold for any technique, and not safe beside any other use of techniques.
// It panics if a value is taken, or out of range. What it returns undoes it.
func Register(t Technique, name string, kind Kind, rank uint8) (undo func()) {
	if t == 0 || int(t) >= MaxTechniques || t.Valid() || name == "" || kind == 0 || rank == 0 {
		panic(fmt.Sprintf("overlay: technique %d, %q, of kind %d and rank %d cannot be added", uint8(t), name, kind, rank))
	}
	for _, o := range Techniques() {
		if o.String() == name || techniques[o].rank == rank {
			panic(fmt.Sprintf("overlay: technique %q: %v has its name or its rank", name, o))
		}
	}
	techniques[t].name, techniques[t].kind, techniques[t].rank = name, kind, rank
	return func() { techniques[t].name, techniques[t].kind, techniques[t].rank = "", 0, 0 }
}

// Techniques lists every technique in order of preference.
func Techniques() []Technique {
	all := make([]Technique, 0, MaxTechniques)
	for t := range Technique(MaxTechniques) {
		if t.Valid() {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, Technique.Compare)
	return all
}

// Compare returns -1 if t is preferred to o when both work, 1 if o is, and 0 if they are one technique. No technique, which is a
// connection within a node, is preferred to all; one that is not known comes last.
func (t Technique) Compare(o Technique) int {
	return cmp.Or(cmp.Compare(t.rank(), o.rank()), cmp.Compare(t, o))
}

func (t Technique) rank() int {
	switch {
	case t == 0:
		return 0
	case !t.Valid():
		return 1 << 8
	}
	return int(techniques[t].rank)
}

// PreferredTo reports whether t is preferred to o when both work, as Compare says.
func (t Technique) PreferredTo(o Technique) bool { return t.Compare(o) < 0 }

// String returns the technique's name as configuration files and logs use it.
func (t Technique) String() string {
	if !t.Valid() {
		return fmt.Sprintf("technique(%d)", uint8(t))
	}
	return techniques[t].name
}

// Valid reports whether t is one of the techniques above.
func (t Technique) Valid() bool { return int(t) < MaxTechniques && techniques[t].kind != 0 }

// Kind returns which ends open t's connection; 0 for an unknown technique.
func (t Technique) Kind() Kind {
	if !t.Valid() {
		return 0
	}
	return techniques[t].kind
}

// Ways says which techniques a dial may use: a link that has a carrier may want a better one, or
// one on another path. One of the flags may be added.
type Ways uint8

// The ways. Processes of one node, and those without daemons, support only one.
const (
	AllWays    Ways = iota // every technique of the plan
	DirectOnly             // all but the relay
	RelayOnly
	Reserved // the relay that a Reserver was asked to keep ready, which needs no daemon but its proxy
)

// Flags on the size of packets. Without a flag the helper decides by what it remembers.
const (
	// SmallPackets: at most 576 bytes, because larger packets seem to vanish on the way.
	SmallPackets Ways = 0x80
	// FullPackets: of any size, or the dial fails: the dialler has small ones already.
	FullPackets Ways = 0x40

	packetFlags = SmallPackets | FullPackets
)

// SmallPacket is the maximum size of a small packet in bytes, which every path carries (RFC 791,
// section 3.2).
const SmallPacket = 576

// Techniques returns w without flags.
func (w Ways) Techniques() Ways { return w &^ packetFlags }

// Valid reports whether w is one of the ways, with one flag at most.
func (w Ways) Valid() bool { return w.Techniques() <= Reserved && w&packetFlags != packetFlags }

// Allow reports whether t is among the ways.
func (w Ways) Allow(t Technique) bool {
	w = w.Techniques()
	return w == AllWays || (w != DirectOnly) == (t == Relay)
}

// String returns what a dial with these ways looks for.
func (w Ways) String() string {
	switch {
	case !w.Valid():
		return fmt.Sprintf("ways(%d)", uint8(w))
	case w&SmallPackets != 0:
		return w.Techniques().String() + " in small packets"
	case w&FullPackets != 0:
		return w.Techniques().String() + " in packets of full size"
	}
	switch w {
	case AllWays:
		return "any way"
	case DirectOnly:
		return "a way without a relay"
	case RelayOnly:
		return "a relay"
	case Reserved:
		return "a reserve relay"
	}
	return fmt.Sprintf("ways(%d)", uint8(w))
}

// MarshalText implements encoding.TextMarshaler with the names of String.
func (t Technique) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("unknown technique %d", uint8(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Technique) UnmarshalText(text []byte) error {
	for _, known := range Techniques() {
		if known.String() == string(text) {
			*t = known
			return nil
		}
	}
	return fmt.Errorf("unknown technique %q; want one of %v", text, Techniques())
}

// Via says at which ends of a link the site's gateway carries the data, because the node there has
// no route out.
type Via uint8

// The ends, to be combined with |.
const (
	ViaAsker  Via = 1 << iota // the frontal of the asking process's site
	ViaTarget                 // the frontal of the target's site
)

// String returns "", "asker's gateway", "target's gateway" or "both gateways".
func (v Via) String() string {
	switch v & (ViaAsker | ViaTarget) {
	case ViaAsker:
		return "asker's gateway"
	case ViaTarget:
		return "target's gateway"
	case ViaAsker | ViaTarget:
		return "both gateways"
	}
	return ""
}

// Step is one technique of a plan, with the reason for trying it.
type Step struct {
	Technique Technique `json:"technique"`
	Via       Via       `json:"via,omitempty"`
	Reason    string    `json:"reason"`

	// Port is the port from which the asker must dial, where the target's site lets out no other;
	// 0: any.
	Port uint16 `json:"port,omitempty"`

	// IPv6 says that the technique is carried out over IPv6, whatever other addresses the two ends
	// have.
	IPv6 bool `json:"ipv6,omitempty"`
}

// Rejection is a technique that a plan leaves out, with the reason.
type Rejection struct {
	Technique Technique `json:"technique"`
	Reason    string    `json:"reason"`
}

// Plan says how processes of one site connect to processes of another: which
// techniques to try in which order, and why each other one is left out. Steps
// and Rejected together name every technique exactly once. A plan without
// steps means that the sites cannot be joined; Rejected says why.
type Plan struct {
	Asker    SiteID      `json:"asker"`
	Target   SiteID      `json:"target"`
	Steps    []Step      `json:"steps"`
	Rejected []Rejection `json:"rejected"`
}
