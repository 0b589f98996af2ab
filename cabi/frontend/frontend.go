// Package frontend has the sources of the front-ends in C, most of them generated: what a program's
// calls reach first; and what Fortran programs are compiled with. They know an ABI and nothing of what the functions do, and keep no state.
package frontend

import "embed"

// Files has the sources, and mpi.h of the standard ABI, in folder c: a folder of its own, since
// the go command compiles C beside Go files. Folder fortran has mpif.h and the modules.
//
//go:embed c fortran
var Files embed.FS
