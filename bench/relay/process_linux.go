package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is another process of this program, playing a part.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	addr string // where it listens
}

// startPart starts a part on a host and waits until it listens.
func startPart(ctx context.Context, at *place, self []string, part string, ip netip.Addr, key string) (*process, error) {
	cmd := exec.CommandContext(ctx, self[0], append(self[1:len(self):len(self)], part)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := at.do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", part, err)
	}
	p := &process{cmd: cmd, in: in}
	if _, err := fmt.Fprintf(in, "%v %s\n", netip.AddrPortFrom(ip, 0), key); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	// A part that hangs is ended, so that the read below ends too.
	hung := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	hung.Stop()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the %s to listen: %w", part, err), p.stop())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// stop ends the process and returns how it ended. A nil process has ended.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	p.in.Close()
	hung := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer hung.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("part %s: %w", p.cmd.Args[len(p.cmd.Args)-1], err)
	}
	return nil
}
