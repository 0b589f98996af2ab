// Command make makes the libraries for C programs, and mpi.h, in a folder:
//
//	go run ./cabi/make FOLDER
//
// It needs a C compiler, and is run within the module.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/isthmus-grid/isthmus/cabi/build"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "make: want FOLDER, for lib and include")
		os.Exit(2)
	}
	if err := build.Libraries(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "make:", err)
		os.Exit(1)
	}
}
