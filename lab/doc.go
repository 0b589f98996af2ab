// Package lab builds sites out of data: each host is a network namespace, each site a bridge behind
// a gateway with a real firewall or NAT, and all gateways connect to one "internet" namespace where
// the emulator of package lab/wan delays, limits, drops and counts what passes between them.
//
//	node - lan0 (bridge) - gateway - wan0 - internet - wan0 - gateway - lan0 - node
//	                                           |
//	                                        wan0 - public host
//
// A Spec, usually a YAML file, names the sites and the shape of the WAN; a preset (Presets) names
// the rules of a gateway. Between some gateways and the internet there is a provider's router, with
// its own preset's rules, a smaller MTU or a rate limit for datagrams: "site/cgn" if it translates
// addresses, "site/isp" if it does not. It is then the site's endpoint on the WAN.
//
// Site number s (from 1, in the order of the file) has these addresses, where c is the number of a
// public host or CONNECT proxy, from 2:
//
//	              IPv4            IPv6
//	LAN           10.s.0.0/24     2001:db8:s::/64
//	  gateway     10.s.0.1        2001:db8:s::1
//	  nodes from  10.s.0.11       2001:db8:s::b
//	gateway wan0  100.64.s.2      2001:db8:ff00:s::2
//	provider      198.51.100.s    2001:db8:fffe::s
//	public host   203.0.113.c     2001:db8:ffff::c
//
// The internet routes a site's LAN only when its gateway neither translates addresses nor hides its
// nodes, and the wire to a gateway only when no provider translates; it drops packets to other
// addresses of these networks. A site has IPv6 when its preset, Spec.IPv6 or Site.OnlyIPv6 says so,
// and public hosts when any site does. IPv6 is never translated, and a preset filters both versions
// alike.
//
// A site with two uplinks has a second wire, wan1 at 100.65.s.2, and its hosts have a second IPv4
// address, in 10.s.1.0/24: a node's source address decides the uplink of its packets. Both belong
// to the site's endpoint on the WAN. In the preset asymmetric hosts have one address; what they
// send leaves by wan0, and answers arrive by wan1.
//
// Faults can be injected into a running lab: Lab.Cut, CutUplink and SetWAN act on the WAN,
// Host.Drop, Reset, Police, ForgetFlows and Renumber on one host.
//
// Everything needs a process tree that Main (or Enter) has put into namespaces of its own: it runs
// as root and, through a user namespace, as an ordinary user; it executes no program other than its
// own. Nothing has a name in the file system and nothing is pinned, so the kernel removes the whole
// lab with its last process, however that process ends. /run, and with it Dir and os.TempDir, is a
// tmpfs of the lab's own.
//
// The package knows nothing of brokers, relays or messages; it provides hosts to run them on. Its
// state is the Lab value and the kernel's namespaces.
package lab
