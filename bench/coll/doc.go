// Package coll is `isthmus-lab bench coll`: how long collective calls take among ranks
// at several sites, compared with a lower bound (package bound), with each algorithm when
// it is forced, and with Open MPI and MPICH.
//
// A scenario (scenario.go) is a lab of sites, each a LAN with its hosts behind a gateway that
// forwards everything, so that the other MPIs can run there too. A site's link has the same
// rate both ways and shares it among all other sites; the round trip between any two sites
// is the same. The ranks of a site are on one host unless Options.Nodes says otherwise. Our
// ranks run as any job does: real daemons, `isthmus run`, encrypted links between sites. The
// other MPIs (peers_linux.go) run a C program with the same loops (c/coll.c), which is
// compiled for the run and started on the same hosts. They use TCP between hosts and shared
// memory within one.
//
// # How it is timed
//
// The orders to ranks are described in order.go. Repetitions of calls between sites begin
// on all ranks at the same time of the machine's clock, which all processes share: ranks
// can leave a barrier as far apart as a call takes. A repetition ends with its slowest
// rank, and nothing is subtracted. Within a site, where a call takes less time than waking
// a process, it begins by that clock when the first rank leaves a barrier: a rank's own time
// would be nothing where it has what it needs before it begins.
//
// The implementations of a figure run one after the other, round by round; the rows are
// medians of all repetitions. Idle implementations sleep.
//
// The bound counts only the payload at the link's full rate. Ethernet, IP and TCP headers take
// 4.4 % of that rate, and TLS another 0.1 %.
package coll
