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
// preset (Presets) names the rules of a gateway. Site number s (from 1, in the
// order of the file) has the LAN 10.0.0.0/8 part 10.s.0.0/24 with its gateway at
// 10.s.0.1 and its nodes from 10.s.0.11, and the gateway's WAN address is
// 100.64.s.2. Public hosts and the CONNECT proxies of http-proxy sites own one
// address of 203.0.113.0/24 each. The internet routes a site's LAN only when its
// gateway neither translates addresses nor hides its nodes; packets to other
// private addresses vanish there.
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
