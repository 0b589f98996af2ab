package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Timeouts of the commands.
const (
	buildPatience = 2 * time.Minute // for building a lab
	stopPatience  = 5 * time.Second // for a command after its signal
)

// Stay is "isthmus-lab up": it builds the sites of a spec file, prints a table of
// hosts and how to enter them to w, and stays until ctx is done or SIGINT, SIGTERM or SIGHUP
// comes; then it prints what the WAN carried. It calls Enter.
func Stay(ctx context.Context, file string, w io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	start := time.Now()
	l, err := upFile(ctx, file)
	if err != nil {
		return err
	}
	defer l.Close()
	l.printHosts(w)
	fmt.Fprintf(w, "\n%d hosts up in %v. Ctrl-C takes them down. Another terminal enters one by\n  %sNAMESPACE sh\n",
		len(l.plan.hosts), time.Since(start).Round(time.Millisecond), enterWith())
	select {
	case <-ctx.Done():
		fmt.Fprintln(w)
		l.printTraffic(w)
	case <-l.Done():
	}
	return l.Close()
}

func upFile(ctx context.Context, file string) (*Lab, error) {
	spec, err := Load(file)
	if err != nil {
		return nil, err
	}
	if err := Enter(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	return Up(ctx, spec)
}

func (l *Lab) printHosts(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tNAME INSIDE\tROLE\tADDRESS\tIPV6\tON THE WAN\tPRESET\tNAMESPACE")
	for _, p := range l.plan.hosts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%s\t%s\t%s\t%s\n", p.name, p.dnsName(), roleNames[p.role], p.addr,
			orDash(p.six.addr), orDash(p.wan), p.presetIs, l.hosts[p.name].namespacePath())
	}
	t.Flush()
}

func orDash(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

// namespacePath returns the path of the host's namespace for processes outside the lab.
func (h *Host) namespacePath() string {
	if outerPID == 0 {
		return "-"
	}
	return fmt.Sprintf("/proc/%d/fd/%d", outerPID, h.ns.Fd())
}

// enterWith returns the command that enters a host from outside the lab, without
// the namespace's path and the program to run.
func enterWith() string {
	if inUserNamespace() {
		return fmt.Sprintf("nsenter -t %d -U --preserve-credentials -m -p --net=", outerPID)
	}
	return fmt.Sprintf("nsenter -t %d -m -p --net=", outerPID)
}

// inUserNamespace reports whether root here is not the machine's root.
func inUserNamespace() bool {
	var inside, outside, size uint64
	text, err := readText("/proc/self/uid_map")
	if err != nil {
		return false
	}
	_, err = fmt.Sscan(text, &inside, &outside, &size)
	return err == nil && size != 1<<32-1
}

func (l *Lab) printTraffic(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tPACKETS\tBYTES\tMESSAGES\tDROPPED")
	for _, c := range l.Traffic() {
		if c.Packets+c.Dropped > 0 {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\n", c.From, c.To, c.Packets, c.Bytes, c.Messages, c.Dropped)
		}
	}
	t.Flush()
}

// RunAt is "isthmus-lab run": it builds the sites of a spec file, runs argv on the
// host named at ("" means the first node of the first site) with this process's
// standard streams, takes the lab down and returns the command's exit status (128 +
// signal when a signal ended it, 127 when it could not be started). SIGINT, SIGTERM
// and SIGHUP go to the command, which then has five seconds. It calls Enter.
func RunAt(ctx context.Context, file, at string, argv []string) (int, error) {
	if len(argv) == 0 {
		return 127, errors.New("lab: no command; give one behind --")
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	l, err := upFile(ctx, file)
	if err != nil {
		return 1, err
	}
	defer l.Close()
	h, err := l.Lookup(l.orFirstNode(at))
	if err != nil {
		return 1, err
	}
	code, err := runOn(ctx, h, argv, signals)
	if err != nil {
		return code, err
	}
	return code, l.Close()
}

func (l *Lab) orFirstNode(at string) string {
	if at != "" {
		return at
	}
	return l.spec.Sites[0].Name + "/" + l.spec.Sites[0].Nodes[0]
}

// runOn runs argv on h and forwards signals to it.
func runOn(ctx context.Context, h *Host, argv []string, signals <-chan os.Signal) (int, error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	cmd := h.Command(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if tty := foreground(); tty != nil {
		// The command gets the terminal, and with it Ctrl-C. Nothing could continue it after
		// Ctrl-Z, so that is ignored.
		signal.Ignore(unix.SIGTSTP)
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(tty.Fd())
		defer tty.Close()
	}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return commandStatus(err)
		case s := <-signals:
			cmd.Process.Signal(s) // an error means that it has ended
			defer time.AfterFunc(stopPatience, kill).Stop()
		}
	}
}

// commandStatus converts the result of Wait to an exit status.
func commandStatus(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exitStatus(exit.Sys().(syscall.WaitStatus)), nil
	default:
		return 1, fmt.Errorf("lab: waiting for the command: %w", err)
	}
}
