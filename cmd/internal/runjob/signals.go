package runjob

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

// standardInput returns what rank 0 reads; nil if the kernel would stop this process for reading
// it, because it is in the background of its terminal.
func standardInput() io.Reader {
	foreground, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	if err == nil && foreground != unix.Getpgrp() {
		return nil
	}
	return os.Stdin
}

// endSignals returns the signals that are to end a job, except those that this process was started
// to ignore. The third one ends this process immediately.
func endSignals() (signals <-chan os.Signal, stop func()) {
	raw, out, over := make(chan os.Signal, 4), make(chan os.Signal, 2), make(chan struct{})
	broken := make(chan os.Signal, 1) // if our output has no reader, the job is ended
	signal.Notify(broken, syscall.SIGPIPE)
	for _, s := range ranks.EndSignals {
		if !signal.Ignored(s) {
			signal.Notify(raw, s)
		}
	}
	ended := make(chan struct{})
	go func() { // ends by stop
		defer close(ended)
		for {
			select {
			case s := <-raw:
				select {
				case out <- s:
				default:
					os.Exit(128 + int(s.(syscall.Signal)))
				}
			case <-over:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(raw)
		signal.Stop(broken)
		close(over)
		<-ended
	}
}
