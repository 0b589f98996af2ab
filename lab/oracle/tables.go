package oracle

// The measured tables, by letter. Each function answers for an ordered pair.

// Kinds that a listener can be reached at. A full cone lets in only what follows
// a packet from inside, so a listener alone cannot be reached there.
const (
	anyPort   = "OD"
	somePorts = "P"
)

// anywhere lists the kinds that let a SYN out to any port. The others do not reach a process's
// listener, which is never on port 443.
const anywhere = "OSRFJXYLPNIECDMU"

// translates lists the kinds with a NAT, for IPv4.
const translates = "NIECDM"

// dials reports whether a plain connect from a reaches a listener at b.
func dials(a, b kind) bool { return in(a, anywhere) && in(b, anyPort+somePorts) }

// The blocks of the table of simultaneous open, in which there was no exception.
const (
	openBlock     = "OCD"
	flagBlock     = "SR" // rejects bare SYNs by their flags
	statefulBlock = "FJXYLPNIEUH"
	symmetricNAT  = "M"
	onlyProxy     = "Z"
)

// opens reports whether simultaneous open connects the two over IPv4. The table
// is symmetric.
func opens(a, b kind) bool {
	switch {
	case in(a, onlyProxy) || in(b, onlyProxy):
		return false
	case in(a, "H") && !owns443(b), in(b, "H") && !owns443(a):
		return false
	case in(a, openBlock) || in(b, openBlock):
		return true
	case in(a, symmetricNAT) || in(b, symmetricNAT):
		return false
	case in(a, flagBlock) && in(b, flagBlock):
		return false
	}
	return in(a, flagBlock+statefulBlock) && in(b, flagBlock+statefulBlock)
}

// owns443 reports whether a host at the site can appear outside with port 443, the only port to
// which a host at H sends.
func owns443(k kind) bool { return !in(k, "EMZ") }

// An answer is what is known of a technique for a pair.
type answer uint8

const (
	no answer = iota
	yes
	unsettled
)

// The kinds as distinguished by the table of SYN carrying.
const (
	passesInjected = "OSCD"        // once the SYN is injected, the rest passes as for any connection
	resets         = "RJI"         // as targets they answer the asker's own SYN with a reset, before the carried one arrives
	stateful       = "FPUXYLNE"    // needs a packet outward first, and so an asker that silently accepts it
	quiet          = "OSFPUXYLNCE" // askers that do
)

// traverses reports whether carrying the asker's SYN connects the two, at the best of its levels
// and with CAP_NET_RAW at both ends.
func traverses(a, b kind) answer {
	switch {
	case in(a, "HZ") || in(b, "HZ"):
		return no // only packets to one port, or to the proxy, leave there
	case in(a, symmetricNAT):
		return yesIf(in(b, openBlock))
	case in(b, symmetricNAT) && in(a, openBlock):
		return unsettled // the asker cannot know which port to dial; reversed and simultaneous open work
	case in(b, symmetricNAT):
		return no
	case in(b, resets):
		return no
	case in(b, passesInjected):
		return yes
	case b.hidden && in(b, "XY"):
		// The host behind such a gateway was measured, and so was a host that drops packets that
		// its own tracker calls INVALID, which failed; a gateway that is the host itself was not.
		return unsettled
	case in(a, quiet):
		return yesIf(in(b, stateful))
	case in(a, "J") && in(b, "FXYN"):
		return yes
	}
	// R and J answer the incoming packet with a reset, and the result depends on which of two
	// packets is first; I and D were not measured as askers.
	return unsettled
}

func yesIf(works bool) answer {
	if works {
		return yes
	}
	return no
}

// punchable lists the kinds through which a datagram can be punched, whatever the other side unless
// that is a symmetric NAT.
const punchable = "OSRFJXYLPNIECD"

// takesAnyDatagram lists the kinds that accept datagrams from a port they never sent to: no filter,
// or one that filters only TCP.
const takesAnyDatagram = "OSRCD"

// forDatagrams returns the kind for datagrams.
func (k kind) forDatagrams() kind {
	if k.dgram != 0 {
		k.letter = k.dgram
	}
	return k
}

// punches reports whether UDP hole punching connects the two.
func punches(a, b kind) bool {
	if !a.udp || !b.udp {
		return false
	}
	a, b = a.forDatagrams(), b.forDatagrams()
	switch {
	case in(a, symmetricNAT):
		return in(b, takesAnyDatagram)
	case in(b, symmetricNAT):
		return in(a, takesAnyDatagram)
	}
	return in(a, punchable) && in(b, punchable)
}
