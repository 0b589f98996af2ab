// Package peermpi runs Open MPI and MPICH as packaged by Debian: how a benchmark's program is
// compiled with them and what their launchers need to start its ranks at hosts that are network
// namespaces of this machine, without ssh. What the program does and which transports and
// algorithms are chosen is up to each benchmark. It runs on Linux only; its state is the files in
// the folder that it is given.
package peermpi
