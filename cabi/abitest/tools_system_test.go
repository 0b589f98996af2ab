//go:build system

package abitest

import "testing"

func TestTools(t *testing.T)      { passes(t, standardProgram(t, "tools.c")) }
func TestMPICHTools(t *testing.T) { passes(t, mpichProgram(t, "tools.c")) }
