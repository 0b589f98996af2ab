package mpilib

import "context"

// TB is what TestWorld needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}
