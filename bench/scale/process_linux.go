package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/isthmus-grid/isthmus/bench/runner"
)

// start starts a part and returns it with its first line of output.
func (o Options) start(ctx context.Context, part string, say order) (*runner.Process, string, error) {
	text, err := json.Marshal(say)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, o.Self[0], append(o.Self[1:len(o.Self):len(o.Self)], part)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // this process has no namespace that would end with it
	p, line, err := runner.StartPart(cmd, cmd.Start, string(text), patience)
	if err != nil {
		return nil, "", fmt.Errorf("part %s: %w", part, err)
	}
	return p, line, nil
}
