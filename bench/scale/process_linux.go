package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a part that runs.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a part and returns it with its first line of output.
func (o Options) start(ctx context.Context, part string, say order) (*process, string, error) {
	argv := append(o.Self, part)
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(say)
	if err == nil {
		_, err = p.in.Write(append(text, '\n'))
	}
	var line string
	if err == nil {
		line, err = p.line()
	}
	if err != nil {
		p.stop()
		return nil, "", fmt.Errorf("part %s: %w", part, err)
	}
	return p, line, nil
}

// line returns the part's next line of output.
func (p *process) line() (string, error) {
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// goOn makes the part take its next step.
func (p *process) goOn() error {
	_, err := io.WriteString(p.in, "\n")
	return err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the part by closing its input, or by force after a while.
func (p *process) stop() {
	p.in.Close()
	force := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() })
	defer force.Stop()
	p.cmd.Wait()
}
