//go:build system

package abitest

import "testing"

// gridSizes are numbers of ranks that make grids of one and two dimensions, and leave ranks out.
var gridSizes = []int{1, 2, 4, 6}

// noAddress has gcc not warn that MPI_UNWEIGHTED, a constant, is no address of numbers.
var noAddress = []string{"-Wno-stringop-overflow", "-Wno-stringop-overread"}

func TestCartesian(t *testing.T)      { passesWith(t, gridSizes, standardProgram(t, "cartesian.c")) }
func TestMPICHCartesian(t *testing.T) { passesWith(t, gridSizes, mpichProgram(t, "cartesian.c")) }
func TestGraphs(t *testing.T)         { passesWith(t, gridSizes, standardProgram(t, "graphs.c", noAddress...)) }
func TestMPICHGraphs(t *testing.T)    { passesWith(t, gridSizes, mpichProgram(t, "graphs.c")) }
func TestNeighbours(t *testing.T) {
	passesWith(t, gridSizes, standardProgram(t, "neighbours.c", noAddress...))
}
func TestMPICHNeighbours(t *testing.T)   { passesWith(t, gridSizes, mpichProgram(t, "neighbours.c")) }
func TestSplits(t *testing.T)            { passesWith(t, []int{1, 3}, standardProgram(t, "splits.c")) }
func TestMPICHSplits(t *testing.T)       { passesWith(t, []int{3}, mpichProgram(t, "splits.c")) }
func TestOpenMPICartesian(t *testing.T)  { passesWith(t, gridSizes, openMPIProgram(t, "cartesian.c")) }
func TestOpenMPIGraphs(t *testing.T)     { passesWith(t, gridSizes, openMPIProgram(t, "graphs.c")) }
func TestOpenMPINeighbours(t *testing.T) { passesWith(t, gridSizes, openMPIProgram(t, "neighbours.c")) }
