package core

import (
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/mpilib/errclass"
)

// Error classes (MPI-5.0, section 9.4).
const (
	success       = int32(0)
	errBuffer     = int32(1)
	errCount      = int32(2)
	errType       = int32(3)
	errTag        = int32(4)
	errComm       = int32(5)
	errRank       = int32(6)
	errRequest    = int32(7)
	errRoot       = int32(8)
	errGroup      = int32(9)
	errOp         = int32(10)
	errTopology   = int32(11)
	errDims       = int32(12)
	errArg        = int32(13)
	errUnknown    = int32(14)
	errTruncate   = int32(15)
	errOther      = int32(16)
	errPending    = int32(18)
	errInStatus   = int32(19)
	errBase       = int32(24)
	errConversion = int32(25)
	errInfoKey    = int32(31)
	errInfoNoKey  = int32(32)
	errInfoValue  = int32(33)
	errInfo       = int32(34)
	errKeyval     = int32(36)
	errName       = int32(38)
	errNoMem      = int32(39)
	errPort       = int32(43)
	errService    = int32(51)
	errAborted    = int32(58)
	errHandler    = int32(61)
	errABI        = int32(62)
	errSession    = int32(60)
)

// classes has the class of each of mpilib's errors; the first that fits counts.
var classes = []struct {
	err   error
	class int32
}{
	{mpilib.ErrProcFailedPending, errPending},
	{mpilib.ErrProcFailed, errAborted},
	{mpilib.ErrTruncate, errTruncate},
	{mpilib.ErrRank, errRank},
	{mpilib.ErrTag, errTag},
	{mpilib.ErrCount, errCount},
	{mpilib.ErrType, errType},
	{mpilib.ErrTypeFreed, errType},
	{mpilib.ErrSignature, errType},
	{mpilib.ErrUncommitted, errType},
	{mpilib.ErrConversion, errConversion},
	{mpilib.ErrFreed, errComm},
	{mpilib.ErrIntercomm, errComm},
	{mpilib.ErrIntracomm, errComm},
	{mpilib.ErrDims, errDims},
	{mpilib.ErrTopology, errTopology},
	{mpilib.ErrPort, errPort},
	{mpilib.ErrName, errName},
	{mpilib.ErrService, errService},
	{mpilib.ErrActive, errRequest},
	{mpilib.ErrInactive, errRequest},
	{mpilib.ErrArg, errArg},
}

// texts describes the classes that functions here return.
var texts = map[int32]string{
	success: "no error", errBuffer: "invalid buffer", errCount: "invalid count", errType: "invalid datatype", errTag: "invalid tag",
	errComm: "invalid communicator", errRank: "invalid rank", errRequest: "invalid request", errRoot: "invalid root",
	errGroup: "invalid group", errOp: "invalid operation", errTopology: "invalid topology", errDims: "invalid dimensions", errArg: "invalid argument",
	errUnknown: "unknown error", errTruncate: "the message is longer than the receive's buffer", errOther: "other error",
	errPending: "the request is pending", errInStatus: "the statuses have the errors", errName: "no such name",
	errInfoKey: "invalid key of an info", errInfoNoKey: "no such key in the info", errInfoValue: "invalid value of an info", errInfo: "invalid info", errKeyval: "invalid key of an attribute",
	errBase: "invalid address of memory", errNoMem: "there is no memory",
	errConversion: "a number cannot be represented", errPort: "no such port", errService: "the name is not this process's", errAborted: "a process has failed", errHandler: "invalid error handler", errABI: "the ABI was set before", errSession: "invalid session",
}

// classError is an error of this package.
type classError struct {
	class int32
	text  string
}

func (e *classError) Error() string { return e.text }

// Class returns the class; errors of the packages below have one, too.
func (e *classError) Class() int32 { return e.class }

// failure returns an error of a class.
func failure(class int32, format string, args ...any) error {
	return &classError{class, fmt.Sprintf(format, args...)}
}

// classOf returns the class of an error.
func classOf(err error) int32 {
	if err == nil {
		return success
	}
	var own interface{ Class() int32 }
	if errors.As(err, &own) {
		return own.Class()
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	return errOther
}

// added are the classes and codes of the program's, above those of the standard.
var added errclass.Added

// AddErrorClass adds a class (MPI-5.0, section 9.5).
func AddErrorClass(class uintptr) int32 {
	store(class, int32(added.AddClass()))
	return success
}

// AddErrorCode adds a code of a class.
func AddErrorCode(class int32, code uintptr) int32 {
	c, err := added.AddCode(errclass.Class(class))
	if err == nil {
		store(code, int32(c))
	}
	return onWorld("MPI_Add_error_code", err)
}

// AddErrorString sets the text of a class or code that was added.
func AddErrorString(code int32, text uintptr) int32 {
	said, err := loadText(text, maxErrorString, errArg)
	if err == nil {
		err = added.SetText(int(code), said)
	}
	return onWorld("MPI_Add_error_string", err)
}

// RemoveErrorClass removes a class that was added and has no codes.
func RemoveErrorClass(class int32) int32 {
	return onWorld("MPI_Remove_error_class", added.RemoveClass(errclass.Class(class)))
}

// RemoveErrorCode removes a code that was added.
func RemoveErrorCode(code int32) int32 {
	return onWorld("MPI_Remove_error_code", added.RemoveCode(int(code)))
}

// RemoveErrorString removes the text of a class or code that was added.
func RemoveErrorString(code int32) int32 {
	return onWorld("MPI_Remove_error_string", added.RemoveText(int(code)))
}

// ErrorClass returns the class of a code; those of the standard are classes.
func ErrorClass(code int32, class uintptr) int32 {
	of, err := added.Class(int(code))
	if err == nil {
		store(class, int32(of))
	}
	return onWorld("MPI_Error_class", err)
}

// ErrorString describes a class or code.
func ErrorString(code int32, text, length uintptr) int32 {
	said, ok := texts[code]
	if !ok {
		var err error
		if said, err = added.Text(int(code)); err != nil {
			return onWorld("MPI_Error_string", err)
		}
	}
	storeText(text, said, maxErrorString, length)
	return success
}

// callErrhandler has an object's result called with a code of the program's.
func callErrhandler(call string, code int32, result func(call string, err error) int32) error {
	said, err := added.Text(int(code))
	if err == nil {
		result(call, failure(code, "the program has an error: %s", said))
	}
	return err
}

// CommCallErrhandler calls the error handler of a communicator with a code.
func CommCallErrhandler(comm uintptr, code int32) int32 {
	const call = "MPI_Comm_call_errhandler"
	return onComm(call, comm, func(c *communicator) error { return callErrhandler(call, code, c.result) })
}
