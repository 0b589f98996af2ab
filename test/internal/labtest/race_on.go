//go:build race

package test

// RaceEnabled says that these tests were built with the race detector; the programs are then, too.
const raced = true
