package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
)

// process is another process of this program that runs a part.
type process struct {
	*runner.Process
	addr string // where it listens
}

// listenBound is the timeout until a part listens.
const listenBound = 10 * time.Second

// startPart starts a part on a host and waits until it listens.
func startPart(ctx context.Context, at *place, self []string, part string, ip netip.Addr, key string) (*process, error) {
	cmd := exec.CommandContext(ctx, self[0], append(self[1:len(self):len(self)], part)...)
	p, err := runner.Attend(cmd, func() error { return at.do(cmd.Start) }, cmd.Wait)
	if err != nil {
		return nil, err
	}
	if err := p.Tell(fmt.Sprint(netip.AddrPortFrom(ip, 0), " ", key)); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	words, err := p.HearLine(listenBound)
	if err == nil && len(words) != 1 {
		err = fmt.Errorf("%v: said %q instead of where it listens", p, words)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &process{p, words[0]}, nil
}

// stop ends the process and returns how it ended. A nil process has ended.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	return p.Stop()
}
