// Package peermpi is Open MPI and MPICH as Debian has them: how a program of a benchmark
// is compiled with them and what their launchers need to start its ranks at hosts that
// are network namespaces of this machine, without ssh. What the program does and which
// transports and algorithms are chosen is each benchmark's business. It runs on Linux
// only; its state are the files in the folder that it is given.
package peermpi
