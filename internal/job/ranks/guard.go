package ranks

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// guardScript kills the process groups that it was told of and not untold, and removes a folder, at the end
// of its input.
const guardScript = `while read -r g; do case $g in +*) all="$all -${g#+} ";; -*) all="${all%% $g *} ${all#* $g }";; esac; done
case $all in *[0-9]*) kill -s KILL -- $all;; esac
[ -z "$1" ] || rm -rf -- "$1"`

// guard is a shell that outlives this process if that is killed, and then ends what the ranks have started:
// those themselves the kernel ends, where it can. A nil guard does nothing.
type guard struct {
	cmd    *exec.Cmd
	groups *os.File
}

// startGuard starts a guard for ranks that meet in a folder, if there is one; nil where there is no shell.
func startGuard(dir string) *guard {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer theirs.Close()
	g := &guard{exec.Command("/bin/sh", "-c", guardScript, "isthmus-guard", dir), ours}
	g.cmd.Stdin, g.cmd.Env = theirs, []string{"PATH=/usr/bin:/bin"}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of a terminal reaches it
	if err := g.cmd.Start(); err != nil {
		ours.Close()
		return nil
	}
	return g
}

// add has the guard end the group of a process, until remove.
func (g *guard) add(pid int) { g.tell("+", pid) }

func (g *guard) remove(pid int) { g.tell("-", pid) }

// tell ignores that the guard was killed: it is not needed for anything else.
func (g *guard) tell(what string, pid int) {
	if g != nil {
		fmt.Fprintf(g.groups, "%s%d\n", what, pid)
	}
}

// end ends the guard, when there is nothing left of the ranks.
func (g *guard) end() {
	if g != nil {
		g.cmd.Process.Kill() // before the end of its input
		g.groups.Close()
		g.cmd.Wait()
	}
}
