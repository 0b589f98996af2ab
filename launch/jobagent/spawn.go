package jobagent

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Spec says how to start a job agent.
type Spec struct {
	Listener   *os.File            // of the agent's Unix socket; it stays the caller's
	Env        []string            // all of its environment, and the base of its processes'
	Credential *syscall.Credential // its account; nil: this process's own

	// Group names the control group that holds the agent and all its processes, where
	// this process can make one; Memory (bytes), CPU (thousandths of a core) and Tasks
	// (processes and threads) bound what they may use together; 0: not limited.
	Group  string
	Memory int64
	CPU    int
	Tasks  int

	Log *os.File // takes what an agent says that cannot run; nil: nothing does
}

// Process is a job agent that was started, with its guard.
type Process struct {
	cmd   *exec.Cmd
	group *cgroup
}

// agentMemory is what an agent and its guard may use of memory beside the job.
const agentMemory = 64 << 20

// Spawn starts a job agent, in a session of its own: it outlives this process. Call Wait
// once. Programs that call it call Main first.
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

// PID returns the number of the guard's process, from which all processes of the job
// descend.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits for the end of the agent and its guard, and ends what they could not.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	p.group.remove()
	return err
}

// Kill ends the agent and its guard at once, and where there is a control group the whole
// job; otherwise Wait and the guard's kernel links see to it.
func (p *Process) Kill() {
	p.group.kill()
	p.cmd.Process.Kill()
}

// RemoveGroup ends what is left in the control group of an agent that another process
// had started, and removes it.
func RemoveGroup(name string) { leftCgroup(name).remove() }
