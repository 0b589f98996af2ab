//go:build !race

package group

// everyPairOf is the number of processes of the groups that are compared pairwise: 1957 groups, 3.8
// million pairs.
const everyPairOf = 6
