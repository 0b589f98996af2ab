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

// A life holds the parameters of one process from start to end.
type life struct {
	name         string
	log          *slog.Logger
	stderr       io.Writer
	grace        time.Duration // to end
	drainGrace   time.Duration // to finish its work before
	readyFD      int           // 0: none
	readyFile    string        // "": none
	notifySocket string        // "": not started by systemd
	adminSocket  string        // "": in the state folder, or none
	hooks        *Hooks
	reload       func() error // on SIGHUP
}

// live runs serve until it returns by itself, or until a signal or ctx requests the end; then it
// has the grace time. Three events can follow a first signal to end:
//
//	serve returns       -> its error
//	the grace is over   -> all stacks to stderr, error
//	a second signal     -> what still runs in short, error
//
// In the last two serve's goroutines are abandoned: the process must end. The other signals leave
// serve running; see [Hooks].
func live(ctx context.Context, l *life, serve func(ctx context.Context, ready func(...string)) error) error {
	announce, err := newAnnouncer(l)
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	defer announce.close()

	orders := make(chan os.Signal, 8)
	adminSocket, err := openAdminSocket(l, orders)
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	defer func() { adminSocket.close(announce.handed) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go returnMemory(ctx)               // ends with this process's life
	signals := make(chan os.Signal, 2) // one to end, one to end at once
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Notify(orders, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(orders)

	done := make(chan error, 1)
	unready := make(chan error, 1)
	go func() { // ends with serve, or with the process
		done <- serve(l.hooks.context(ctx), func(facts ...string) {
			if err := l.hooks.activated.unusedError(); err != nil {
				unready <- err // at most one: no socket is released twice
				return
			}
			if err := announce.ready(facts); err != nil {
				l.log.Error("cannot notify the service manager that the daemon is ready", "error", err)
			}
			adminSocket.begin()
		})
	}()

	d := drainer{life: l, announce: announce}
	defer d.close(cancel)
	var failure error // why this process ends, if that was not requested
	for ending := false; !ending; {
		select {
		case err := <-done:
			return ended(ctx, err)
		case failure = <-unready:
			ending = true
		case s := <-signals:
			l.log.Info("stopping", "signal", s.String(), "grace", l.grace)
			ending = true
		case <-ctx.Done():
			l.log.Info("stopping", "grace", l.grace)
			ending = true
		case s := <-orders:
			ending = d.order(ctx, s)
		case err := <-d.ready():
			d.succeeded(ctx, err)
		case err := <-d.lost():
			l.log.Error("the successor has ended; this process goes on serving what it has", "error", err)
			d.child.ended = nil
		case <-d.over:
			l.hooks.cutNow()
			l.log.Warn("drained for long enough; what is left is cut", "drain_grace", l.drainGrace)
			ending = true
		}
	}
	announce.stopping()
	cancel()
	grace := time.NewTimer(l.grace)
	defer grace.Stop()
	select {
	case err := <-done:
		if failure != nil {
			return &exitError{err: failure, code: exitFailed}
		}
		return ended(ctx, err)
	case s := <-signals:
		return &exitError{code: exitFailed, err: fmt.Errorf("second signal (%s): left at once; still running:\n%s", s, stillRunning())}
	case <-grace.C:
		fmt.Fprintf(l.stderr, "%s\n", stacks())
		return &exitError{code: exitFailed, err: fmt.Errorf("did not end within shutdown_grace (%s); the stacks above show what it waited for", l.grace)}
	}
}

// drainer handles the signals that do not request an immediate end.
type drainer struct {
	*life
	announce *announcer
	child    *successor       // nil: none was started
	waits    bool             // child is not ready yet
	over     <-chan time.Time // nil: not draining
}

// order handles a signal, and reports whether the daemon must end.
func (d *drainer) order(ctx context.Context, s os.Signal) (end bool) {
	switch s {
	case syscall.SIGHUP:
		d.announce.reloading()
		if err := d.reload(); err != nil {
			d.log.Error("the settings were not read again", "error", err)
		}
		d.announce.announceReady()
	case syscall.SIGUSR1:
		if !d.hooks.drain(false) {
			d.log.Info("stopping: there is nothing to drain", "signal", s.String(), "grace", d.grace)
			return true
		}
		d.drain("end")
	case syscall.SIGUSR2:
		if d.child != nil || d.hooks.isDraining() {
			d.log.Warn("a successor was started already, or the daemon drains")
			return false
		}
		child, err := d.hooks.startSuccessor()
		if err != nil {
			d.log.Error("no successor was started; this process serves on", "error", err)
			return false
		}
		d.child, d.waits = child, true
		d.log.Info("successor started", "pid", child.cmd.Process.Pid)
	}
	return false
}

func (d *drainer) drain(then string) {
	d.log.Info("draining", "then", then, "drain_grace", d.drainGrace)
	d.announce.status("draining")
	if d.over == nil {
		d.over = time.After(d.drainGrace)
		d.hooks.cutAt(time.Now().Add(d.drainGrace))
	}
}

// ready receives whether the successor is ready; nil while none is starting.
func (d *drainer) ready() <-chan error {
	if !d.waits {
		return nil
	}
	return d.child.ready
}

// lost receives how a successor that has taken over ended.
func (d *drainer) lost() <-chan error {
	if d.child == nil || d.waits {
		return nil
	}
	return d.child.ended
}

// succeeded lets a ready successor take over, and kills one that will not become ready.
func (d *drainer) succeeded(ctx context.Context, err error) {
	d.waits = false
	if err == nil && !d.hooks.drain(true) {
		err = errors.New("this daemon cannot drain")
	}
	if err != nil {
		d.child.cmd.Process.Kill()
		d.log.Error("the successor did not become ready and was ended; this process continues; see the successor's log", "pid", d.child.cmd.Process.Pid, "error", errors.Join(err, <-d.child.ended))
		d.child.close()
		d.child = nil
		return
	}
	d.announce.succeeded(d.child.cmd.Process.Pid)
	d.child.work.Go(func() { d.hooks.serveReturns(ctx, d.child) })
	d.drain("the successor goes on")
}

// close releases what the process shares with its successor, which goes on.
func (d *drainer) close(cancel context.CancelFunc) {
	cancel()
	if d.child == nil {
		return
	}
	if d.waits { // this process ends, so the successor would not be waited for
		d.child.cmd.Process.Kill()
	}
	d.child.close()
}

func (s *successor) close() {
	s.kin.Close()
	s.work.Wait()
}

// ended converts serve's result to the command's error.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return &exitError{err: err, code: exitFailed}
}
