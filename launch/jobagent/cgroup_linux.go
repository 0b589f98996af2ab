package jobagent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroup is a control group (version 2) that holds a job's agent and processes, so that all of them
// can be killed at once, and so that they stay within the resources they asked for, where the
// controllers are available. A nil cgroup is no group.
type cgroup struct{ dir string }

// newCgroup creates a group below the helper's own, or beside it if that is named "helper", as
// systemd's DelegateSubgroup=helper arranges: processes can then be limited, which the kernel does
// not permit below a group that has processes itself. It returns nil if no group can be created.
// memory is in bytes, cpu in thousandths of a core, and tasks counts threads; 0: not limited.
func newCgroup(name string, memory int64, cpu, tasks int) *cgroup {
	base := ownCgroup()
	if name == "" || base == "" {
		return nil
	}
	return newCgroupIn(base, name, memory, cpu, tasks)
}

// newCgroupIn is newCgroup for a process in the group base.
func newCgroupIn(base, name string, memory int64, cpu, tasks int) *cgroup {
	dir := groupIn(base, name)
	if dir == "" || os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	if filepath.Base(base) == delegated { // systemd gives the controllers to the group above, and no further
		for _, c := range []string{"+memory", "+cpu", "+pids"} {
			_ = os.WriteFile(filepath.Join(filepath.Dir(base), "cgroup.subtree_control"), []byte(c), 0)
		}
	}
	// The files exist only with the controllers.
	if memory > 0 {
		_ = os.WriteFile(filepath.Join(dir, "memory.max"), []byte(strconv.FormatInt(memory, 10)), 0)
	}
	if cpu > 0 {
		const period = 100_000 // microseconds
		_ = os.WriteFile(filepath.Join(dir, "cpu.max"), fmt.Appendf(nil, "%d %d", cpu*(period/1000), period), 0)
	}
	if tasks > 0 {
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(tasks)), 0)
	}
	return &cgroup{dir}
}

// delegated is the name of the group in which systemd puts this process if it delegates the parent
// group.
const delegated = "helper"

// cgroupOf returns the folder of the named group, or "" if there can be none.
func cgroupOf(name string) string {
	return groupIn(ownCgroup(), name)
}

func groupIn(base, name string) string {
	if base == "" {
		return ""
	}
	if filepath.Base(base) == delegated {
		base = filepath.Dir(base)
	}
	return filepath.Join(base, "isthmus-"+name)
}

// leftCgroup returns the named group that a killed process left behind, or nil.
func leftCgroup(name string) *cgroup {
	dir := cgroupOf(name)
	if _, err := os.Stat(dir); dir == "" || err != nil {
		return nil
	}
	return &cgroup{dir}
}

// ownCgroup returns the folder of this process's group, or "".
func ownCgroup() string {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(groups)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for mount := range strings.Lines(string(mounts)) {
			f := strings.Fields(mount)
			if i := strings.Index(mount, " - cgroup2 "); i >= 0 && len(f) > 4 && strings.HasPrefix(path, f[3]) {
				return filepath.Join(f[4], strings.TrimPrefix(path, f[3]))
			}
		}
	}
	return ""
}

// start starts a command in the group, or outside of it if the kernel refuses.
func (g *cgroup) start(cmd *exec.Cmd) error {
	if g == nil {
		return cmd.Start()
	}
	dir, err := os.Open(g.dir)
	if err != nil {
		return cmd.Start()
	}
	defer dir.Close()
	inside := *cmd
	attr := *cmd.SysProcAttr
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	inside.SysProcAttr = &attr
	if inside.Start() == nil {
		*cmd = inside
		return nil
	}
	return cmd.Start()
}

// kill kills all processes of the group.
func (g *cgroup) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
	}
}

// remove kills what is left in the group, and removes it.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	g.kill()
	for end := time.Now().Add(time.Second); os.Remove(g.dir) != nil && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // until the kernel has reaped them
	}
}
