package runjob

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/launch/profile"
)

// driverFlag marks the command line of a driver: that of its submitter, with this flag.
const driverFlag = "driver"

// defaultOutputLimit is what is kept of each output of a detached job.
const defaultOutputLimit = "256MiB"

// detachFlags are those of "isthmus run" for jobs that outlive it.
func detachFlags() []cli.Flag {
	const category = "outliving this command"
	return []cli.Flag{
		&cli.BoolFlag{Category: category, Name: "detach", Usage: "return when the job has started, and print its id: it goes on without this command and its terminal; isthmus attach shows its output"},
		&cli.StringFlag{Category: category, Name: "stdin", Usage: "with --detach: `FILE` that rank 0 reads", DefaultText: "none"},
		&cli.StringFlag{Category: category, Name: "output-limit", Usage: "with --detach: keep at most `SIZE` of each, standard output and standard error: of more, the first half and the last", Value: defaultOutputLimit},
		&cli.BoolFlag{Name: driverFlag, Hidden: true},
	}
}

// outputLimit returns what is kept of each output of a detached job.
func outputLimit(c *cli.Context) (int64, error) {
	limit, err := profile.ParseBytes(c.String("output-limit"))
	if err != nil || int64(limit) < detached.MinLimit {
		return 0, cmdline.Usage(fmt.Sprintf("run: --output-limit %s: want a size of 1MiB or more", c.String("output-limit")))
	}
	return int64(limit), nil
}

// checkDetach checks what is said of detached jobs, before anything else is done.
func checkDetach(c *cli.Context) error {
	if !c.Bool("detach") {
		for _, name := range []string{"stdin", "output-limit"} {
			if c.IsSet(name) {
				return cmdline.Usage(fmt.Sprintf("run: --%s goes with --detach", name))
			}
		}
		return nil
	}
	for _, name := range []string{"ranks", "key"} {
		if c.IsSet(name) {
			return cmdline.Usage(fmt.Sprintf("run: --detach is for whole jobs, and --%s starts a part of one: omit one of them", name))
		}
	}
	if c.Bool("dry-run") {
		return cmdline.Usage("run: --detach: --dry-run starts nothing: omit one of them")
	}
	_, err := outputLimit(c)
	return err
}

// submission is a driver as its submitter sees it.
type submission struct {
	cmd   *exec.Cmd
	lines *os.File // what the driver says
}

// detach starts a driver, and returns when it has started the job, or could not.
func detach(c *cli.Context) error {
	signals := make(chan os.Signal, 4)
	for _, s := range ranks.EndSignals {
		if !signal.Ignored(s) { // as nohup has it
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	s, err := startDriver(c.String("stdin"))
	if err != nil {
		return fmt.Errorf("run: --detach: %w", err)
	}
	defer s.lines.Close()
	over := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() { // the driver has a session of its own, which no terminal sends signals
		for {
			select {
			case <-signals:
				s.cmd.Process.Signal(syscall.SIGTERM)
			case <-over:
				return
			}
		}
	})
	id, err := relay(s.lines, os.Stderr)
	// Whoever has read the id may end this command, and the job goes on.
	signal.Stop(signals)
	close(over)
	passing.Wait()
	if err != nil {
		return fmt.Errorf("run: --detach: what the driver says: %w", err)
	}
	if id == "" { // it has reported why
		return cli.Exit("", waitStatus(s.cmd))
	}
	return s.started(c, id)
}

// startDriver starts this program once more, with the same words, as a driver in a session of its own.
// Until the job has a folder, it has this process's standard error.
func startDriver(stdin string) (*submission, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &submission{cmd: exec.Command(self, append([]string{os.Args[1], "--" + driverFlag}, os.Args[2:]...)...)}
	s.cmd.Stderr, s.cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			return nil, fmt.Errorf("--stdin: %w", err)
		}
		defer f.Close()
		s.cmd.Stdin = f
	}
	lines, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	s.lines, s.cmd.ExtraFiles = lines, []*os.File{theirs}
	keepOthers()
	if err := s.cmd.Start(); err != nil {
		lines.Close()
		return nil, fmt.Errorf("starting the driver: %w", err)
	}
	return s, nil
}

// keepOthers keeps the descriptors that the shell has passed on, such as a pipe that somebody reads to
// its end, or a lock, from the driver.
func keepOthers() {
	open, _ := os.ReadDir("/dev/fd") // none where a system has no such folder
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > syscall.Stderr {
			syscall.CloseOnExec(fd)
		}
	}
}

// relay returns the job's id, which is the first line of a driver, when it says no more, and copies
// its other lines.
func relay(from io.Reader, to io.Writer) (id string, err error) {
	r := bufio.NewReader(from)
	first, err := r.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err == nil {
		_, err = io.Copy(to, r)
	}
	return strings.TrimSuffix(first, "\n"), err
}

// waitStatus returns the exit status of a driver that ended before its job had a folder.
func waitStatus(cmd *exec.Cmd) int {
	cmd.Wait()
	if ended, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
		return 128 + int(ended.Signal())
	}
	return max(1, cmd.ProcessState.ExitCode()) // not 0, whatever it was: no job has started
}

// started says how to see a job, or that it did not start.
func (s *submission) started(c *cli.Context, id string) error {
	root, err := detached.Root()
	if err != nil {
		return fmt.Errorf("run: --detach: %w", err)
	}
	job, err := detached.Find(root, id)
	switch {
	case err != nil:
		return fmt.Errorf("run: --detach: %s: %w", id, err)
	case !job.Started.IsZero():
		fmt.Fprintln(c.App.Writer, id)
		fmt.Fprintf(os.Stderr, "isthmus: the job has started; isthmus attach %s shows its output, isthmus kill %[1]s ends it\n", id)
		return nil
	case job.Phase == detached.Ended: // it has said why
		if err := job.Remove(); err != nil {
			return fmt.Errorf("run: --detach: %w", err)
		}
		return cli.Exit("", job.Status)
	}
	return cli.Exit(fmt.Sprintf("run: --detach: %s: its driver, process %d, ended before the job had started: it was killed, or see %s/driver", id, job.PID, job.Dir()), 128+int(syscall.SIGKILL))
}
