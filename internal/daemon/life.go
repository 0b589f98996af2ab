package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A life is one process's way from start to end.
type life struct {
	name         string
	log          *slog.Logger
	stderr       io.Writer
	grace        time.Duration
	readyFD      int    // 0: none
	readyFile    string // "": none
	notifySocket string // "": not started by systemd
}

// live runs serve until it returns by itself, or until a signal or ctx asks it
// to end; then it has the grace time. Three things can follow a first signal:
//
//	serve returns       -> its error
//	the grace is over   -> all stacks to stderr, error
//	a second signal     -> what still runs in short, error
//
// In the last two serve's goroutines are abandoned: the process must end.
func live(ctx context.Context, l life, serve func(ctx context.Context, ready func(...string)) error) error {
	announce, err := newAnnouncer(l)
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	defer announce.close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 2) // one to end, one to end at once
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	done := make(chan error, 1)
	go func() { // ends with serve, or with the process
		done <- serve(ctx, func(facts ...string) {
			if err := announce.ready(facts); err != nil {
				l.log.Error("cannot tell that the daemon is ready", "error", err)
			}
		})
	}()

	select {
	case err := <-done:
		return ended(ctx, err)
	case s := <-signals:
		l.log.Info("stopping", "signal", s.String(), "grace", l.grace)
	case <-ctx.Done():
		l.log.Info("stopping", "grace", l.grace)
	}
	announce.stopping()
	cancel()
	grace := time.NewTimer(l.grace)
	defer grace.Stop()
	select {
	case err := <-done:
		return ended(ctx, err)
	case s := <-signals:
		return &exitError{code: exitFailed, err: fmt.Errorf("second signal (%s): left at once; still running:\n%s", s, stillRunning())}
	case <-grace.C:
		fmt.Fprintf(l.stderr, "%s\n", stacks())
		return &exitError{code: exitFailed, err: fmt.Errorf("did not end within shutdown_grace (%s); the stacks above show what it waited for", l.grace)}
	}
}

// ended turns what serve returned into the command's error.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return &exitError{err: err, code: exitFailed}
}
