// Package mpi tests programs on mpilib over the sites of a grid: benchmarks and applications,
// collectives, names, rules of the standard, and processes that die.
package mpi
