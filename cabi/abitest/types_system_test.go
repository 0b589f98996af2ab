//go:build system

package abitest

import "testing"

func TestTypes(t *testing.T)      { passes(t, standardProgram(t, "types.c")) }
func TestMPICHTypes(t *testing.T) { passes(t, mpichProgram(t, "types.c")) }

func TestOpenMPITypes(t *testing.T)      { passes(t, openMPIProgram(t, "types.c")) }
func TestOperations(t *testing.T)        { passes(t, standardProgram(t, "operations.c")) }
func TestMPICHOperations(t *testing.T)   { passes(t, mpichProgram(t, "operations.c")) }
func TestOpenMPIOperations(t *testing.T) { passes(t, openMPIProgram(t, "operations.c")) }
