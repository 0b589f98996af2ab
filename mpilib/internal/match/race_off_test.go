//go:build !race

package match

// programLength is the number of steps of the programs in the exhaustive test: 3 million programs.
const programLength = 6
