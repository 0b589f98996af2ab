//go:build system

package abitest

import (
	"testing"

	_ "github.com/isthmus-grid/isthmus/cabi/core" // the libraries have it: the tests run again when it changes
)

func TestGroups(t *testing.T)               { passes(t, standardProgram(t, "groups.c")) }
func TestCommunicators(t *testing.T)        { passes(t, standardProgram(t, "communicators.c")) }
func TestAttributes(t *testing.T)           { passes(t, standardProgram(t, "commattributes.c")) }
func TestMPICHGroups(t *testing.T)          { passes(t, mpichProgram(t, "groups.c")) }
func TestMPICHCommunicators(t *testing.T)   { passes(t, mpichProgram(t, "communicators.c")) }
func TestMPICHAttributes(t *testing.T)      { passes(t, mpichProgram(t, "commattributes.c")) }
func TestOpenMPIGroups(t *testing.T)        { passes(t, openMPIProgram(t, "groups.c")) }
func TestOpenMPICommunicators(t *testing.T) { passes(t, openMPIProgram(t, "communicators.c")) }
func TestOpenMPIAttributes(t *testing.T)    { passes(t, openMPIProgram(t, "commattributes.c")) }
