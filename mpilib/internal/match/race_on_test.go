//go:build race

package match

// programLength is less with the race detector, which would find nothing more
// in a million times the same goroutine.
const programLength = 4
