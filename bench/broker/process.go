package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// patience is the timeout of the broker's start, of its end and of every call to it.
const patience = 20 * time.Second

// process is a broker that runs as a process of its own.
type process struct {
	cmd    *exec.Cmd
	addr   string
	ca     *ca.CA
	dir    string
	stderr bytes.Buffer // whole after done
	done   chan error
}

// startBroker starts the broker on one core and returns once it serves.
func startBroker(ctx context.Context, o Options) (*process, error) {
	dir, err := os.MkdirTemp("", "isthmus-bench-broker-")
	if err != nil {
		return nil, fmt.Errorf("bench broker: %w", err)
	}
	p := &process{dir: dir, done: make(chan error, 1)}
	if err := p.start(ctx, o); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("bench broker: start the broker: %w", err)
	}
	return p, nil
}

func (p *process) start(ctx context.Context, o Options) error {
	authority, _, err := ca.New("bench", time.Hour)
	if err != nil {
		return err
	}
	files, err := authority.Write(p.dir, control.Identity{Role: control.RoleBroker, Name: "bench"}, time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	p.ca = authority
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	// An empty file and no ISTHMUS_BROKER_ variables: the broker must not read the settings of one
	// that this machine runs.
	config := filepath.Join(p.dir, "broker.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return err
	}
	args := append(o.Broker[1:len(o.Broker):len(o.Broker)], "--config="+config, "--listen=127.0.0.1:0", "--log-level=warn", "--ready-fd=3",
		"--tls-cert="+files.Cert, "--tls-key="+files.Key, "--tls-ca="+files.CA)
	p.cmd = exec.CommandContext(ctx, o.Broker[0], args...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ISTHMUS_BROKER_") })
	p.cmd.Env = append(env, "GOMAXPROCS=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.ExtraFiles = []*os.File{w} // descriptor 3
	if err := p.cmd.Start(); err != nil {
		return err
	}
	w.Close()                              // r then ends when the broker does
	go func() { p.done <- p.cmd.Wait() }() // ends with the process, which stop ends
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return p.failed(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	addr, found := strings.CutPrefix(strings.TrimSpace(line), "ready listen=")
	if err != nil || !found {
		return p.failed(fmt.Errorf("ready line %q: %v", line, err))
	}
	p.addr = addr
	return nil
}

// failed ends a broker that did not start, and returns an error with its output.
func (p *process) failed(err error) error {
	p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%w\n%s", err, p.stderr.String())
}

// stop ends the broker and removes its files.
func (p *process) stop() error {
	defer os.RemoveAll(p.dir)
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("bench broker: the broker failed: %w\n%s", err, p.stderr.String())
		}
		return nil
	case <-time.After(patience):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("bench broker: the broker did not end within %v of SIGTERM", patience)
	}
}

// resident returns the broker's resident memory in bytes.
func (p *process) resident() (int64, error) {
	text, err := p.proc("status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("bench broker: /proc/%d/status has no VmRSS", p.cmd.Process.Pid)
}

// cpu returns the CPU time that the broker has used, in user and system mode.
// Its unit is 10 ms (USER_HZ, see proc_pid_stat(5)).
func (p *process) cpu() (time.Duration, error) {
	text, err := p.proc("stat")
	if err != nil {
		return 0, err
	}
	// The second field may hold blanks; it ends at the last parenthesis.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("bench broker: /proc/%d/stat is %q", p.cmd.Process.Pid, text)
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("bench broker: /proc/%d/stat: %w", p.cmd.Process.Pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func (p *process) proc(name string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
	if err != nil {
		return "", fmt.Errorf("bench broker: memory and CPU time are read from /proc, which only Linux has in this form: %w", err)
	}
	return string(b), nil
}
