// Package errclass gives the errors of package mpilib the classes that MPI has for them (MPI-5.0,
// section 9.4), for bindings of other languages, in which calls return numbers. It is pure.
package errclass

import (
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Class is an error class, with the number that the standard's ABI has for it (MPI-5.0, chapter 20).
type Class int

// The classes that errors of mpilib have.
const (
	Success         Class = 0
	Count           Class = 2  // MPI_ERR_COUNT
	Type            Class = 3  // MPI_ERR_TYPE
	Tag             Class = 4  // MPI_ERR_TAG
	Comm            Class = 5  // MPI_ERR_COMM
	Rank            Class = 6  // MPI_ERR_RANK
	Request         Class = 7  // MPI_ERR_REQUEST
	Op              Class = 10 // MPI_ERR_OP
	Topology        Class = 11 // MPI_ERR_TOPOLOGY
	Dims            Class = 12 // MPI_ERR_DIMS
	Arg             Class = 13 // MPI_ERR_ARG
	Truncate        Class = 15 // MPI_ERR_TRUNCATE
	Other           Class = 16 // MPI_ERR_OTHER: none of the others
	Conversion      Class = 25 // MPI_ERR_CONVERSION
	Name            Class = 38 // MPI_ERR_NAME
	NotSame         Class = 40 // MPI_ERR_NOT_SAME
	Port            Class = 43 // MPI_ERR_PORT
	Service         Class = 51 // MPI_ERR_SERVICE
	Unsupported     Class = 55 // MPI_ERR_UNSUPPORTED_OPERATION
	LastCode        Class = 16383
	ProcFailed      Class = 101 // MPIX_ERR_PROC_FAILED of ULFM; MPI's ABI has no number for it, this is MPICH's
	ProcFailPending Class = 102 // MPIX_ERR_PROC_FAILED_PENDING
	Revoked         Class = 103 // MPIX_ERR_REVOKED
)

// classes are looked through in this order: an error that wraps several has the class of the first,
// which is what a program can act on.
var classes = []struct {
	err   error
	class Class
	name  string
	text  string
}{
	{mpilib.ErrProcFailedPending, ProcFailPending, "MPIX_ERR_PROC_FAILED_PENDING", "a process failed that the pending receive may need"},
	{mpilib.ErrProcFailed, ProcFailed, "MPIX_ERR_PROC_FAILED", "a process failed"},
	{mpilib.ErrRevoked, Revoked, "MPIX_ERR_REVOKED", "the communicator is revoked"},
	{mpilib.ErrTruncate, Truncate, "MPI_ERR_TRUNCATE", "the message is longer than the receive buffer"},
	{mpilib.ErrOp, Op, "MPI_ERR_OP", "invalid operator"},
	{mpilib.ErrSignature, Type, "MPI_ERR_TYPE", "invalid datatype"},
	{mpilib.ErrUncommitted, Type, "MPI_ERR_TYPE", "invalid datatype"},
	{mpilib.ErrTypeFreed, Type, "MPI_ERR_TYPE", "invalid datatype"},
	{mpilib.ErrType, Type, "MPI_ERR_TYPE", "invalid datatype"},
	{mpilib.ErrConversion, Conversion, "MPI_ERR_CONVERSION", "a value cannot be converted"},
	{mpilib.ErrRank, Rank, "MPI_ERR_RANK", "invalid rank"},
	{mpilib.ErrTag, Tag, "MPI_ERR_TAG", "invalid tag"},
	{mpilib.ErrFreed, Comm, "MPI_ERR_COMM", "invalid communicator"},
	{mpilib.ErrIntercomm, Comm, "MPI_ERR_COMM", "invalid communicator"},
	{mpilib.ErrIntracomm, Comm, "MPI_ERR_COMM", "invalid communicator"},
	{mpilib.ErrActive, Request, "MPI_ERR_REQUEST", "invalid request"},
	{mpilib.ErrInactive, Request, "MPI_ERR_REQUEST", "invalid request"},
	{mpilib.ErrDims, Dims, "MPI_ERR_DIMS", "invalid dimensions"},
	{mpilib.ErrTopology, Topology, "MPI_ERR_TOPOLOGY", "invalid topology"},
	{mpilib.ErrPort, Port, "MPI_ERR_PORT", "invalid port"},
	{mpilib.ErrName, Name, "MPI_ERR_NAME", "the name is not published"},
	{mpilib.ErrService, Service, "MPI_ERR_SERVICE", "the name is not this process's"},
	{mpilib.ErrMismatch, NotSame, "MPI_ERR_NOT_SAME", "the ranks disagree"},
	{mpilib.ErrReplicated, Unsupported, "MPI_ERR_UNSUPPORTED_OPERATION", "not for ranks with replicas"},
	{mpilib.ErrCount, Count, "MPI_ERR_COUNT", "invalid count"},
	{mpilib.ErrArg, Arg, "MPI_ERR_ARG", "invalid argument"},
	{nil, Other, "MPI_ERR_OTHER", "other error"},
	{nil, Success, "MPI_SUCCESS", "no error"},
}

// Of returns the class of an error of mpilib (MPI_Error_class): Success for nil, and Other for
// errors that have none, such as that of a context that ended.
func Of(err error) Class {
	if err == nil {
		return Success
	}
	for _, c := range classes {
		if c.err != nil && errors.Is(err, c.err) {
			return c.class
		}
	}
	return Other
}

// Text returns what a class means, for MPI_Error_string, and whether errors of mpilib may have it.
func (c Class) Text() (text string, ok bool) {
	for _, k := range classes {
		if k.class == c {
			return k.name + ": " + k.text, true
		}
	}
	return "", false
}
