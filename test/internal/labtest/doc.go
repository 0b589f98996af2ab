// Package labtest is what the packages of tests below test/ share: real programs in
// real network namespaces. Main runs a package's tests in a lab, NewWorld puts a whole
// Isthmus into it, and what this returns joins ranks, links them, launches jobs and
// reads what the daemons say. It knows no subject; what only one package asks is there.
// It keeps nothing after a run.
package labtest
