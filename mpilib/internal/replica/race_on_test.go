//go:build race

package replica

// raceEnabled skips the largest searches, in which the race detector would find nothing: there is
// one goroutine.
const raceEnabled = true
