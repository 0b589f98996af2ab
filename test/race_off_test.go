//go:build !race

package test

const RaceEnabled = false
