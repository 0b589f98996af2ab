// Package labtest holds what the packages of tests below test/ share: real programs in real network
// namespaces. Main runs a package's tests in a lab, NewWorld puts a whole Isthmus into it, and a
// World joins ranks, links them, launches jobs and reads the daemons' output. It is independent of
// what is tested; helpers of a single package are in that package. It keeps nothing after a run.
package labtest
