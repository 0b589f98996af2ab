//go:build system

package abitest

import "testing"

func TestABI(t *testing.T)                 { passes(t, standardProgram(t, "abi.c")) }
func TestFortranTypes(t *testing.T)        { passes(t, standardProgram(t, "fortrantypes.c")) }
func TestMPICHFortranTypes(t *testing.T)   { passes(t, mpichProgram(t, "fortrantypes.c")) }
func TestOpenMPIFortranTypes(t *testing.T) { passes(t, openMPIProgram(t, "fortrantypes.c")) }
