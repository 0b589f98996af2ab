package gate

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// A booking's undertaker is a small process beside the helper. It is told which process
// groups run and does nothing, until the helper lets it go, or dies: then it ends them
// and removes the job's folder. So a helper that is killed leaves nothing behind, where
// the kernel alone would end only the processes themselves and not what they started.
type undertaker struct {
	mu  sync.Mutex
	in  io.WriteCloser
	cmd *exec.Cmd
}

// The script reads what to remember, a word and a value a line. It ends with "done";
// the end of its input without it is the helper's death.
const burial = `trap '' INT TERM HUP
all= group=
while read -r what value; do
	case $what in
	add) all="$all $value" ;;
	del) rest=; for p in $all; do [ "$p" = "$value" ] || rest="$rest $p"; done; all=$rest ;;
	group) group=$value ;;
	done) exit 0 ;;
	esac
done
for p in $all; do kill -s KILL -- "-$p" 2>/dev/null; done
if [ -n "$group" ]; then echo 1 2>/dev/null >"$group/cgroup.kill"; fi
rm -rf -- "$1"
[ -n "$group" ] || exit 0
for again in 1 2 3 4 5 6 7 8 9; do
	rmdir "$group" 2>/dev/null && break
	[ -d "$group" ] || break
	sleep 1
done
exit 0
`

// dig starts an undertaker for a folder.
func dig(folder string) (*undertaker, error) {
	cmd := exec.Command("/bin/sh", "-c", burial, "isthmus-undertaker", folder)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the helper's group is not for it
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start /bin/sh: %w", err)
	}
	return &undertaker{in: in, cmd: cmd}, nil
}

// tell has the undertaker remember something. A nil one does nothing.
func (u *undertaker) tell(what, value string) {
	if u == nil || value == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.in, "%s %s\n", what, value) // fails when it was killed
}

// done sends the undertaker away and waits for its end.
func (u *undertaker) done() {
	if u == nil {
		return
	}
	u.tell("done", "x")
	u.in.Close()
	u.cmd.Wait()
}
