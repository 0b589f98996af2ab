//go:build race

package labtest

// RaceEnabled says that these tests were built with the race detector; the programs are then, too.
const RaceEnabled = true
