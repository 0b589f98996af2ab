package mpilib

import (
	"fmt"
	"os"
)

// ErrorHandler handles the errors of a communicator's calls (MPI-4.1, section 9.3). It is called in
// the goroutine of the failed call, with the error that the call is about to return, and the call
// returns its result instead; nil hides the error. It may call the communicator. Its result should
// wrap errors that the program looks for with errors.Is.
type ErrorHandler func(c *Comm, err error) error

// ErrorsReturn makes calls return their errors, and does nothing else. It is every communicator's
// default: Go programs check returned errors, so this library departs from MPI, where errors are
// fatal by default.
func ErrorsReturn(_ *Comm, err error) error { return err }

// ErrorsAreFatal writes the error to standard error and ends the process with status 1
// (MPI_ERRORS_ARE_FATAL), for programs that do not check returned errors. The launcher ends the
// other ranks.
func ErrorsAreFatal(c *Comm, err error) error {
	fmt.Fprintf(os.Stderr, "fatal error on %s, rank %d: %v\n", c.Name(), c.core.Rank, err)
	os.Exit(1)
	return err
}

// SetErrorHandler makes c's calls pass their errors to h from now on; nil means ErrorsReturn.
// Communicators created from c later inherit it (MPI-4.1, section 9.3.1). If several calls return
// an error, such as the Waits of a failed request, h is called for each.
func (c *Comm) SetErrorHandler(h ErrorHandler) {
	if h == nil {
		c.handler.Store(nil)
		return
	}
	c.handler.Store(&h)
}

// CallErrorHandler passes err to c's handler and returns its result (MPI_Comm_call_errhandler;
// MPI-4.1, section 9.5).
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

// called adds the name of the call to err and passes it to the communicator's error handler.
func (c *Comm) called(name string, err error) error {
	c.callEnded()
	if err != nil {
		return c.raise(fmt.Errorf("mpilib: %s on %s, rank %d%s: %w", name, c.Name(), c.core.Rank, c.world.watch.Line(), err))
	}
	return nil
}
