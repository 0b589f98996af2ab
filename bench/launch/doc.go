// Package launch is `isthmus-lab bench launch`: jobs that are launched over the
// nodes of a grid, with real helpers, reservations and processes. It measures how
// long it takes until all processes run, and it runs the experiment of P2P-MPI's
// co-allocation paper (Genaud and Rattanapoka) on as many live peers at as many
// sites, as far from each other, to see that hosts are chosen as its algorithms
// choose them.
//
// It knows helpers and `isthmus run` only from outside. It keeps no state.
package launch
