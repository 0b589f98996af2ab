package runjob

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/overlay"
)

// console is where the output of a job goes, and what there is to say of it: to this process's own
// outputs or, in the driver of a detached job, to the job's folder.
type console struct {
	stdout, stderr io.Writer
	driver         *detached.Driver // nil: the job is not detached
	submitter      *os.File         // of the driver's; nil: the job has started, or it has gone
}

// newConsole returns the console of a job. In a driver it begins the job's folder.
func newConsole(c *cli.Context, job overlay.JobID) (*console, error) {
	if !c.Bool(driverFlag) {
		return &console{stdout: os.Stdout, stderr: os.Stderr}, nil
	}
	root, err := detached.Root()
	if err != nil {
		return nil, fmt.Errorf("run: --detach: %w", err)
	}
	limit, err := outputLimit(c)
	if err != nil {
		return nil, err
	}
	d, err := detached.Begin(root, job, c.Args().Slice(), limit)
	if err != nil {
		return nil, fmt.Errorf("run: --detach: %w", err)
	}
	con := &console{stdout: d.Stdout(), stderr: d.Stderr(), driver: d}
	syscall.CloseOnExec(fdSubmitter)
	syscall.SetNonblock(fdSubmitter, true) // before NewFile, which makes such a file one with deadlines
	con.submitter = os.NewFile(fdSubmitter, "submitter")
	con.tellSubmitter(string(job))
	if err := d.TakeStderr(); err != nil {
		return nil, con.end(fmt.Errorf("run: --detach: %w", err))
	}
	return con, nil
}

// output returns the form in which the output of the processes is written.
func (o *console) output(form string) (ranks.Output, error) {
	if form == "" && o.driver == nil {
		return ranks.LiveLines(o.stdout, o.stderr, isWatched(os.Stdout, os.Stdin), isWatched(os.Stderr, os.Stdin)), nil
	}
	out, err := ranks.NewOutput(form, o.stdout, o.stderr)
	if err != nil {
		return nil, fmt.Errorf("run: --output: %w", err)
	}
	return out, nil
}

// isWatched reports whether somebody may wait for an unfinished line in out: at a terminal, or a
// program that answers by in.
func isWatched(out, in *os.File) bool {
	info, err := out.Stat()
	if err != nil || info.Mode().IsRegular() {
		return false
	}
	if info.Mode()&os.ModeCharDevice != 0 {
		return true
	}
	input, err := in.Stat()
	if err != nil || input.Mode().IsRegular() {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(null, input)
}

// fdSubmitter is a driver's descriptor for its submitter: first the job's id, then what there is to
// say of the job, in lines, until it is closed when the job has started or ended.
const fdSubmitter = 3

// tellTime bounds the wait for a submitter that has stopped and does not read.
const tellTime = time.Second

// tellSubmitter sends a line to the submitter. After one that does not arrive there are no more.
func (o *console) tellSubmitter(line string) {
	if o.submitter == nil {
		return
	}
	o.submitter.SetWriteDeadline(time.Now().Add(tellTime))
	if _, err := io.WriteString(o.submitter, line+"\n"); err != nil {
		o.closeSubmitter()
	}
}

func (o *console) closeSubmitter() {
	o.submitter.Close() // harmless if there is none
	o.submitter = nil
}

// say prints a line about the job.
func (o *console) say(line string) {
	line = printable.Line(line) // it may name what other hosts said
	fmt.Fprintln(o.stderr, "isthmus:", line)
	o.tellSubmitter("isthmus: " + line)
}

// started is called when all processes of the job have been started.
func (o *console) started() {
	if o.driver == nil {
		return
	}
	if err := o.driver.Running(); err != nil {
		o.say("the state of the job cannot be recorded: " + err.Error())
	}
	o.closeSubmitter()
}

// end takes how the job has ended, and returns the error of this process.
func (o *console) end(err error) error {
	if o.driver == nil {
		return err
	}
	text, status := cmdline.Outcome(err)
	if text != "" {
		o.say(text)
	}
	defer o.closeSubmitter() // it looks at the state then
	if err := o.driver.End(status, text); err != nil {
		return fmt.Errorf("run: the end of the job cannot be recorded: %w", err)
	}
	return cli.Exit("", status)
}
