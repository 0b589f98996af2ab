// Package coll is `isthmus-lab bench coll`: how long collective calls take among ranks
// at several sites, beside the least that they could take (package bound), beside each
// algorithm when it is forced, and beside Open MPI and MPICH.
//
// A scenario (scenario.go) is a lab of sites, each a LAN with its hosts behind a gateway that
// lets everything pass, so that the others can run there too. A site's link has the same
// rate both ways, and shares it among all other sites; any two sites are the same round
// trip apart. The ranks of a site are at one host unless Options.Nodes says more. Ours run
// as any job does: real daemons, `isthmus run`, links between sites encrypted. The others
// (peers_linux.go) are a program in C that does the same loops (c/coll.c), compiled for
// the run and started in the same hosts; between hosts they use TCP, within shared memory.
//
// # How it is timed
//
// The language of the orders that ranks get is described in order.go. Repetitions of
// calls between sites begin on all ranks at one time of the machine's clock, which all
// processes share, so that nothing depends on how far apart ranks leave a barrier: that
// can be as much as what is measured. A repetition ends with its slowest rank, and
// nothing is subtracted. Within a site, where a call takes less than waking up does, each
// begins when its rank leaves a barrier, as in the OSU benchmarks.
//
// All implementations of a figure run one after the other, then all again: printed are the
// medians of all repetitions. Those whose turn it is not sleep.
//
// The bound counts only what MPI's counts say at the link's full rate. Ethernet, IP and TCP
// take 4.4 % of that, and TLS another 0.1 %.
package coll
