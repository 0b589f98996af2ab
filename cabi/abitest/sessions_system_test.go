//go:build system

package abitest

import (
	"fmt"
	"testing"
)

// testSessions runs a program with sessions in all orders of them, MPI_Init and MPI_Finalize.
func testSessions(t *testing.T, program string) {
	for _, way := range []string{"alone", "around", "inside"} {
		t.Run(way, func(t *testing.T) { passes(t, program, way) })
	}
	outputs, errs := job(t, 1, program, "open")
	if want := "isthmus: rank 0: the program ended without MPI_Session_finalize\n"; fmt.Sprint(errs[0]) != "exit status 5" || outputs[0] != want {
		t.Errorf("a session is open at the end: %v, %q, want %q", errs[0], outputs[0], want)
	}
}

func TestSessions(t *testing.T)      { testSessions(t, standardProgram(t, "sessions.c")) }
func TestMPICHSessions(t *testing.T) { testSessions(t, mpichProgram(t, "sessions.c")) }
