//go:build race

package group

// everyPairOf is one less than without the race detector, which would find
// nothing more in a million times the same goroutine.
const everyPairOf = 5
