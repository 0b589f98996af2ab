// Package test holds the tests of the suite as a whole: real programs in real
// network namespaces, and the rules that no single package can check of itself.
// It exports nothing and keeps nothing after a run.
package test
