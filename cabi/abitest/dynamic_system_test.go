//go:build system

package abitest

import "testing"

func TestDynamic(t *testing.T)      { passes(t, standardProgram(t, "dynamic.c")) }
func TestMPICHDynamic(t *testing.T) { passes(t, mpichProgram(t, "dynamic.c")) }
