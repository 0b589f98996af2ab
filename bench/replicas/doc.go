// Package replicas is `isthmus-lab bench replicas`: what it costs a program that its ranks have replicas.
//
// It compares one job whose ranks have r replicas with r jobs without, which run at once on the same hosts, one on those of
// each set of replicas: both have the same processes, and the jobs do what a user would do without replicas who wants every
// result twice. Of a pair of ranks it measures round trips, of the NAS kernels a run, and of IS alone, at 100 Mb/s, how the time
// grows with r by either table, as in figure 5 of P2P-MPI's paper.
//
// Processes are this program again (part.go), each at a host of its own, which an emulator of distance and rate joins; they reach
// each other over TCP as the nodes of a site do. All jobs of a comparison run from its beginning and wait for orders, so that a
// turn is the time from an order to the last answer of all processes. The package uses only mpilib's public calls and keeps no
// state.
package replicas
