//go:build system

package abitest

import (
	"path/filepath"
	"testing"
)

// sizes are the numbers of ranks of the tests below: one, powers of two, and a number that is none.
var sizes = []int{1, 2, 4, 5}

func TestMatched(t *testing.T)          { passesWith(t, sizes, standardProgram(t, "matched.c")) }
func TestNonblocking(t *testing.T)      { passesWith(t, sizes, standardProgram(t, "nonblocking.c")) }
func TestPersistent(t *testing.T)       { passesWith(t, sizes, standardProgram(t, "persistent.c")) }
func TestFlushes(t *testing.T)          { passesWith(t, sizes, standardProgram(t, "flushes.c")) }
func TestPartitioned(t *testing.T)      { passesWith(t, sizes, standardProgram(t, "partitioned.c")) }
func TestGrequests(t *testing.T)        { passesWith(t, sizes, standardProgram(t, "grequests.c")) }
func TestMPICHMatched(t *testing.T)     { passesWith(t, sizes, mpichProgram(t, "matched.c")) }
func TestMPICHNonblocking(t *testing.T) { passesWith(t, sizes, mpichProgram(t, "nonblocking.c")) }
func TestMPICHPersistent(t *testing.T)  { passesWith(t, sizes, mpichProgram(t, "persistent.c")) }
func TestMPICHPartitioned(t *testing.T) { passesWith(t, sizes, mpichProgram(t, "partitioned.c")) }
func TestMPICHGrequests(t *testing.T)   { passesWith(t, sizes, mpichProgram(t, "grequests.c")) }
func TestOpenMPIMatched(t *testing.T)   { passesWith(t, sizes, openMPIProgram(t, "matched.c")) }
func TestOpenMPIPersistent(t *testing.T) {
	passesWith(t, sizes, openMPIProgram(t, "persistent.c", "-include", filepath.Join("testdata", "openmpi", "persistent.h")))
}
func TestOpenMPINonblocking(t *testing.T) { passesWith(t, sizes, openMPIProgram(t, "nonblocking.c")) }
func TestOpenMPIGrequests(t *testing.T)   { passesWith(t, sizes, openMPIProgram(t, "grequests.c")) }
