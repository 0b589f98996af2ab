//go:build race

package group

// everyPairOf is one less than without the race detector, which would find nothing more by running
// one goroutine a million times.
const everyPairOf = 5
