// Package lab builds sites out of data: each host is a network namespace, each
// site a bridge behind a gateway with a real firewall or NAT, and all gateways
// meet in one "internet" namespace where the emulator of package lab/wan delays,
// limits, drops and counts what passes between them.
//
//	node - lan0 (bridge) - gateway - wan0 - internet - wan0 - gateway - lan0 - node
//	                                           |
//	                                        wan0 - public host
//
// A Spec, usually a YAML file, names the sites and the shape of the WAN; a
// preset (Presets) names the rules of a gateway. Between some gateways and the
// internet stands a router of the provider's, with its own preset's rules, a
// smaller MTU or a limit for datagrams: "site/cgn" where it translates addresses,
// "site/isp" where it does not. It then holds the site's place on the WAN.
//
// Site number s (from 1, in the order of the file) has these addresses, where c is
// the place of a public host or CONNECT proxy, from 2:
//
//	              IPv4            IPv6
//	LAN           10.s.0.0/24     2001:db8:s::/64
//	  gateway     10.s.0.1        2001:db8:s::1
//	  nodes from  10.s.0.11       2001:db8:s::b
//	gateway wan0  100.64.s.2      2001:db8:ff00:s::2
//	provider      198.51.100.s    2001:db8:fffe::s
//	public host   203.0.113.c     2001:db8:ffff::c
//
// The internet routes a site's LAN only when its gateway neither translates
// addresses nor hides its nodes, and the wire to a gateway only when no provider
// translates; packets to other addresses of these networks vanish there. A site has
// IPv6 when its preset, Spec.IPv6 or Site.OnlyIPv6 says so, and public hosts when any
// site does.
// IPv6 is never translated, and what a preset filters it filters in both.
//
// A site with two uplinks has a second wire, wan1 at 100.65.s.2, and its hosts have a
// second IPv4 address, in 10.s.1.0/24: the address that a node sends with decides by
// which it leaves. Both have the site's place on the WAN. In the preset asymmetric
// hosts have one address; what they send leaves by wan0, and answers come by wan1.
//
// A running lab can be harmed: Lab.Cut, CutUplink and SetWAN work on the WAN, Host.Drop,
// Reset, Police, ForgetFlows and Renumber on one host.
//
// Everything needs a process tree that Main (or Enter) has put into namespaces
// of its own: it runs as root and, through a user namespace, as an ordinary
// user; no program other than this one is executed. Nothing is named in the file system
// and nothing is pinned, so the kernel removes the whole lab with its last
// process, however that one ends. /run, and with it Dir and os.TempDir, is a
// tmpfs of the lab's own.
//
// The package knows nothing of brokers, relays or messages; it gives places to
// run them. Its state is the Lab value and the kernel's namespaces.
package lab
