// Package launch is `isthmus-lab bench launch`: it launches jobs over the nodes of a grid, with
// real helpers, reservations and processes. It measures the time until all processes run. It also
// repeats the experiment of P2P-MPI's co-allocation paper (Genaud and Rattanapoka) with as many
// live peers at as many sites at the same distances, to check that hosts are chosen as the paper's
// algorithms choose them.
//
// It uses helpers and `isthmus run` only from outside. It keeps no state.
package launch
