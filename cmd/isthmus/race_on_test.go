//go:build race

package main

// slowed is how many times longer a command may take in this build.
const slowed = 3
