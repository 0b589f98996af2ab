//go:build !race

package labtest

// RaceEnabled reports that these tests, and the programs, were built with the race detector.
const RaceEnabled = false
