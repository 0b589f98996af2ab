package datatype

import (
	"errors"
	"fmt"
)

// The causes of this package's errors, for errors.Is.
var (
	// ErrArgument: an argument is out of its range, or too large for 64 bits together with the
	// others. The message names it.
	ErrArgument = errors.New("bad argument")
	// ErrUncommitted: a type was used for a message before Commit.
	ErrUncommitted = errors.New("type is not committed")
	// ErrRange: a message, or a position in it, lies outside what the
	// arguments describe.
	ErrRange = errors.New("out of range")
	// ErrConversion: a value does not fit its external32 form, or external32
	// has no such form (MPI_ERR_CONVERSION).
	ErrConversion = errors.New("value cannot be converted")
	// ErrGoType: a Go type is not plain data.
	ErrGoType = errors.New("not plain data")
)

// badArg returns an error that says that the argument arg of the constructor fn is wrong.
func badArg(fn, arg, format string, a ...any) error {
	return fmt.Errorf("datatype: %s: %s %s: %w", fn, arg, fmt.Sprintf(format, a...), ErrArgument)
}
