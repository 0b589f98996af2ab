//go:build !race

package match

// programLength is how many steps the programs have that are all tried: 3
// million of them.
const programLength = 6
