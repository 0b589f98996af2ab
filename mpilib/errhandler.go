package mpilib

import (
	"fmt"
	"os"
)

// ErrorHandler is what a communicator does with the errors of its calls
// (MPI-4.1, section 9.3). It is called in the goroutine of the failed call,
// with the error that the call is about to return, and what it returns the
// call returns instead; nil hides the error. It may call the communicator.
// Errors that a program looks for with errors.Is should stay wrapped in it.
type ErrorHandler func(c *Comm, err error) error

// ErrorsReturn has calls return their errors, and nothing else. Every
// communicator starts with it: Go programs look at what calls return, so this
// library departs from MPI, where errors are fatal unless asked otherwise.
func ErrorsReturn(_ *Comm, err error) error { return err }

// ErrorsAreFatal writes the error to the standard error and ends the process
// with status 1 (MPI_ERRORS_ARE_FATAL), for programs that do not look at what
// calls return. The launcher ends the other ranks.
func ErrorsAreFatal(c *Comm, err error) error {
	fmt.Fprintf(os.Stderr, "fatal error on %s, rank %d: %v\n", c.Name(), c.core.Rank, err)
	os.Exit(1)
	return err
}

// SetErrorHandler has h see every error of c's calls from now on; nil means
// ErrorsReturn. Communicators made from c later inherit it (MPI-4.1, section
// 9.3.1). An error that several calls return, such as a failed request's
// Waits, is seen by each of them.
func (c *Comm) SetErrorHandler(h ErrorHandler) {
	if h == nil {
		c.handler.Store(nil)
		return
	}
	c.handler.Store(&h)
}

// CallErrorHandler has c's handler see err and returns what it returns
// (MPI_Comm_call_errhandler; MPI-4.1, section 9.5).
func (c *Comm) CallErrorHandler(err error) error { return c.raise(err) }

func (c *Comm) raise(err error) error {
	if err == nil {
		return nil
	}
	err = c.withFailed(err)
	if h := c.handler.Load(); h != nil {
		return (*h)(c, err)
	}
	return err
}
