package doctor

import (
	"cmp"
	"slices"
)

// Status is the result of a check.
type Status string

// The statuses.
const (
	Passed     Status = "ok"
	Failed     Status = "failed"      // the grid cannot work with this
	Warning    Status = "warning"     // it works, but has to work around this, or will fail soon
	NotChecked Status = "not-checked" // Meaning has the reason
)

// Finding is the result of one check, with its interpretation.
type Finding struct {
	Layer    string `json:"layer"`  // name, TCP, HTTP proxy, TLS, MTU, hand-shake, session, clock, NAT, IPv6, UDP, inbound, local, pair
	Target   string `json:"target"` // what was checked: "frontal 10.1.0.1:7440"
	Status   Status `json:"status"`
	Class    Class  `json:"class"`            // the cause; OK if there is none
	Evidence string `json:"evidence"`         // what was observed, and nothing else
	Meaning  string `json:"meaning"`          // what follows from it; every cause that would look the same
	Device   string `json:"device,omitempty"` // the device that most likely refuses, and the reason for that assumption
	Fix      string `json:"fix,omitempty"`    // what to do or request
}

// Class names a cause. Its text form is stable.
type Class string

// The causes that stop a grid, and those that it works around.
const (
	OK Class = "ok"

	Name         Class = "name"
	TCPDropped   Class = "tcp-dropped"
	TCPRefused   Class = "tcp-refused"
	NoRoute      Class = "no-route"
	Unreachable  Class = "unreachable"
	Intercepted  Class = "intercepted"
	TLSBroken    Class = "tls"
	Certificate  Class = "certificate"
	Clock        Class = "clock"
	HTTPProxy    Class = "http-proxy"
	Version      Class = "version"
	Refused      Class = "refused"
	MTU          Class = "mtu"
	BrokerAway   Class = "broker-away"
	HelperSocket Class = "helper-socket"
	Settings     Class = "settings"
	NoPath       Class = "no-path"
	SiteAway     Class = "site-away"
	Contested    Class = "contested"

	NoDualProxy    Class = "no-dual-proxy"
	EgressProxy    Class = "egress-http-proxy"
	Egress443      Class = "egress-443"
	EgressTLS      Class = "egress-tls"
	GatewayOnly    Class = "gateway-only"
	UDPBlocked     Class = "udp-blocked"
	UDPSlow        Class = "udp-slow"
	TCPOptions     Class = "tcp-options"
	NATSymmetric   Class = "nat-symmetric"
	NATFull        Class = "nat-full"
	InboundRefused Class = "inbound-refused"
	InboundDropped Class = "inbound-dropped"
	NAT            Class = "nat"
	Expiring       Class = "certificate-expiring"
	Denied         Class = "denied"
	StoreFault     Class = "store-fault"
)

// classes lists all causes in the order in which to name them: a fault in one layer stops those
// above it. Warnings come after all failures and exit with 0.
var classes = []struct {
	class Class
	exit  int
	what  string
}{
	{Settings, 25, "the daemon's settings file is wrong"},
	{Clock, 18, "this host's clock and the grid's differ too much"},
	{Certificate, 17, "a certificate is missing, expired or not this grid's"},
	{Name, 10, "a host name has no address"},
	{NoRoute, 13, "this host has no route to the address"},
	{TCPDropped, 11, "no answer: packets are lost on the path"},
	{TCPRefused, 12, "a reset was received: nothing listens there, or a firewall resets"},
	{Unreachable, 14, "an ICMP error was received"},
	{HTTPProxy, 19, "the HTTP proxy does not open the tunnel"},
	{MTU, 22, "small packets pass and full-size ones vanish"},
	{Intercepted, 15, "a device on the path answers TLS with its own certificate"},
	{TLSBroken, 16, "the TLS hand-shake fails otherwise"},
	{Version, 20, "the two ends have no protocol version in common"},
	{Contested, 28, "another host presents the same certificate"},
	{Refused, 21, "the other end refused in words"},
	{BrokerAway, 23, "the gateway works and gets no answer from the broker"},
	{HelperSocket, 24, "processes of this node cannot reach the helper"},
	{SiteAway, 27, "a site of the pair is not connected to the broker"},
	{NoPath, 26, "no technique joins the pair"},

	{Expiring, 0, "a certificate expires soon"},
	{StoreFault, 0, "the broker cannot write what must last"},
	{NoDualProxy, 0, "the host has only IPv6, and no proxy has both versions of IP"},
	{EgressProxy, 0, "only the HTTP proxy leads out"},
	{EgressTLS, 0, "only what begins as TLS leads out"},
	{Egress443, 0, "only TCP port 443 leads out"},
	{GatewayOnly, 0, "the node has no route out; its gateway carries its data"},
	{UDPBlocked, 0, "no datagram is received"},
	{UDPSlow, 0, "datagrams are held to a low rate"},
	{TCPOptions, 0, "options are taken out of TCP connections"},
	{NATSymmetric, 0, "the NAT takes another port for every destination"},
	{NATFull, 0, "the NAT lately let no new connection through, while others lived"},
	{InboundRefused, 0, "connections from outside are refused with a reset or an ICMP error"},
	{InboundDropped, 0, "connections from outside vanish"},
	{NAT, 0, "a NAT changes this host's address"},
	{Denied, 0, "the daemon's settings deny what they could permit"},
	{OK, 0, "no obstacle was found"},
}

func rank(c Class) int {
	for i := range classes {
		if classes[i].class == c {
			return i
		}
	}
	panic("doctor: unknown class " + string(c))
}

// ExitCode returns the exit status of a run whose class is c.
func (c Class) ExitCode() int { return classes[rank(c)].exit }

// String returns the text form.
func (c Class) String() string { return string(c) }

// Describe describes the class in half a sentence.
func (c Class) Describe() string { return classes[rank(c)].what }

// ClassRow is one line of the table of classes.
type ClassRow struct {
	Class Class
	Exit  int
	What  string
}

// ClassTable lists all classes in the order of priority.
func ClassTable() []ClassRow {
	rows := make([]ClassRow, len(classes))
	for i, c := range classes {
		rows[i] = ClassRow{c.class, c.exit, c.what}
	}
	return rows
}

// Overall returns the class to name for all findings: the first failed one in the order of
// ClassTable; without failures the first with a warning; else OK.
func Overall(findings []Finding) Class {
	for _, status := range []Status{Failed, Warning} {
		var found []Class
		for _, f := range findings {
			if f.Status == status {
				found = append(found, f.Class)
			}
		}
		if len(found) > 0 {
			return slices.MinFunc(found, func(a, b Class) int { return cmp.Compare(rank(a), rank(b)) })
		}
	}
	return OK
}
