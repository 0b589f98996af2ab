//go:build race

package test

// raced says that this suite was built with the race detector; the programs are then, too.
const raced = true
