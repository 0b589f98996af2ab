//go:build !linux

package jobagent

import "os/exec"

// cgroup is unsupported here.
type cgroup struct{}

func newCgroup(string, int64, int, int) *cgroup { return nil }
func leftCgroup(string) *cgroup                 { return nil }
func (g *cgroup) start(cmd *exec.Cmd) error     { return cmd.Start() }
func (g *cgroup) kill()                         {}
func (g *cgroup) remove()                       {}
