//go:build race

package match

// programLength is smaller with the race detector, which would find nothing more by running one
// goroutine a million times.
const programLength = 4
