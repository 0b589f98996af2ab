//go:build !race

package group

// everyPairOf is how many processes the groups are made of that are compared
// each with each: 1957 groups, 3.8 million pairs.
const everyPairOf = 6
