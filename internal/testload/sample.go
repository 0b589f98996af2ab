//go:build !system

package testload

const full = false
