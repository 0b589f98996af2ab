// Package frontend has the C sources of the front-ends, most of them generated: what a program's
// calls reach first. They know an ABI and nothing of what the functions do, and keep no state.
package frontend

import "embed"

// Files has the sources, and mpi.h of the standard ABI, in folder c: a folder of its own, since
// the go command compiles C beside Go files.
//
//go:embed c
var Files embed.FS
