package jobagent

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Spec describes how to start a job agent.
type Spec struct {
	Listener   *os.File            // of the agent's Unix socket; the caller keeps ownership
	Env        []string            // its complete environment, and the base of its processes'
	Credential *syscall.Credential // its account; nil: this process's own

	// Group names the control group that holds the agent and all its processes, where this process
	// can create one; Memory (bytes), CPU (thousandths of a core) and Tasks (processes and threads)
	// bound their combined use; 0: not limited.
	Group  string
	Memory int64
	CPU    int
	Tasks  int

	Log *os.File // receives the messages of an agent that fails to run; nil: discarded
}

// Process is a running job agent, with its guard.
type Process struct {
	cmd   *exec.Cmd
	group *cgroup
}

// agentMemory is the memory allowed to an agent and its guard beside the job.
const agentMemory = 64 << 20

// Spawn starts a job agent, in a session of its own: it outlives this process. Call Wait once. The
// program's main function must call Main first.
func Spawn(s Spec) (*Process, error) {
	memory := s.Memory
	if memory > 0 {
		memory += agentMemory
	}
	p := &Process{cmd: reexec(roleGuard), group: newCgroup(s.Group, memory, s.CPU, s.Tasks)}
	p.cmd.Env, p.cmd.ExtraFiles = s.Env, []*os.File{s.Listener}
	if p.cmd.Env == nil {
		p.cmd.Env = []string{}
	}
	if s.Log != nil {
		p.cmd.Stderr = s.Log
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.Credential}
	err := p.group.start(p.cmd)
	if err != nil {
		p.group.remove()
		return nil, fmt.Errorf("jobagent: %w", err)
	}
	return p, nil
}

// PID returns the guard's process id; all processes of the job descend from it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits for the end of the agent and its guard, and kills what they could not.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	p.group.remove()
	return err
}

// Kill kills the agent and its guard at once, and with a control group the whole job; otherwise
// Wait and the parent-death signals of the kernel end the job.
func (p *Process) Kill() {
	p.group.kill()
	p.cmd.Process.Kill()
}

// RemoveGroup kills what is left in the control group of an agent that another process started, and
// removes it.
func RemoveGroup(name string) { leftCgroup(name).remove() }
