package wire

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Code is the class of a failure as it crosses a process boundary. An unknown
// code reads as CodeRefused: the text still says why.
type Code uint8

// The classes, each the wire form of an error of package overlay.
const (
	CodeRefused        Code = 1
	CodeUnknownProcess Code = 2
	CodeUnknownSite    Code = 3
	CodeNoPath         Code = 4
	CodeTimeout        Code = 5
	CodeOverloaded     Code = 6
	CodeUnreachable    Code = 7
	CodeDuplicate      Code = 8
	CodeStale          Code = 9
	CodeForbidden      Code = 10
	CodePortRangeFull  Code = 11
	CodeNoRelay        Code = 12
	CodeVersion        Code = 13 // ErrVersion of this package
	CodeMalformed      Code = 14 // ErrMalformed, ErrMagic or ErrType of this package
	CodeNoSession      Code = 15
	CodeEnded          Code = 16
	CodeUnknownName    Code = 17
	CodeNameTaken      Code = 18
	CodeInferior       Code = 19
)

var codeErrors = map[Code]error{
	CodeRefused:        overlay.ErrRefused,
	CodeUnknownProcess: overlay.ErrUnknownProcess,
	CodeUnknownSite:    overlay.ErrUnknownSite,
	CodeNoPath:         overlay.ErrNoPath,
	CodeTimeout:        overlay.ErrTimeout,
	CodeOverloaded:     overlay.ErrOverloaded,
	CodeUnreachable:    overlay.ErrUnreachable,
	CodeDuplicate:      overlay.ErrDuplicate,
	CodeStale:          overlay.ErrStale,
	CodeForbidden:      overlay.ErrForbidden,
	CodePortRangeFull:  overlay.ErrPortRangeFull,
	CodeNoRelay:        overlay.ErrNoRelay,
	CodeVersion:        ErrVersion,
	CodeMalformed:      ErrMalformed,
	CodeNoSession:      overlay.ErrNoSession,
	CodeEnded:          overlay.ErrEnded,
	CodeUnknownName:    overlay.ErrUnknownName,
	CodeNameTaken:      overlay.ErrNameTaken,
	CodeInferior:       overlay.ErrInferior,
}

// codeWords name the classes for logs and counts.
var codeWords = map[Code]string{
	CodeRefused:        "refused",
	CodeUnknownProcess: "unknown-process",
	CodeUnknownSite:    "unknown-site",
	CodeNoPath:         "no-path",
	CodeTimeout:        "timeout",
	CodeOverloaded:     "overloaded",
	CodeUnreachable:    "unreachable",
	CodeDuplicate:      "duplicate",
	CodeStale:          "stale",
	CodeForbidden:      "forbidden",
	CodePortRangeFull:  "port-range-full",
	CodeNoRelay:        "no-relay",
	CodeVersion:        "version",
	CodeMalformed:      "malformed",
	CodeNoSession:      "no-session",
	CodeEnded:          "ended",
	CodeUnknownName:    "unknown-name",
	CodeNameTaken:      "name-taken",
	CodeInferior:       "inferior",
}

// String returns the class in one word.
func (c Code) String() string {
	if word, ok := codeWords[c]; ok {
		return word
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// CodeOf returns the class of err. Deadlines, whether of a context or of a
// socket, are CodeTimeout; an error of no known class is CodeRefused.
func CodeOf(err error) Code {
	if errors.Is(err, overlay.ErrNoSession) { // is also an ErrUnreachable
		return CodeNoSession
	}
	for _, code := range []Code{CodeEnded, CodeUnknownName, CodeNameTaken, CodeInferior} {
		if errors.Is(err, codeErrors[code]) {
			return code
		}
	}
	for code := CodeUnknownProcess; code <= CodeMalformed; code++ {
		if errors.Is(err, codeErrors[code]) {
			return code
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return CodeTimeout
	case errors.Is(err, ErrMagic), errors.Is(err, ErrType):
		return CodeMalformed
	}
	return CodeRefused
}

// Err returns the class as an error of package overlay or wire.
func (c Code) Err() error {
	if err, ok := codeErrors[c]; ok {
		return err
	}
	return overlay.ErrRefused
}

// Errorf returns an error that reads as formatted and matches class c in errors.Is. The received
// text names the class where that helps, so the class adds no words.
func (c Code) Errorf(format string, args ...any) error {
	return &remoteError{text: fmt.Sprintf(format, args...), class: c.Err()}
}

// remoteError is a fault that another process found and reported.
type remoteError struct {
	text  string
	class error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.class }
