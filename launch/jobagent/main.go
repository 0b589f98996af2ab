package jobagent

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// processName is the argv[0] by which the program knows that it was started as a job agent.
const processName = "isthmus-job-agent"

// The first arguments of a job agent.
const (
	roleGuard = "guard"
	roleServe = "serve"
)

// Descriptors of a guard and of its agent.
const (
	fdListener = 3 // of the socket that helpers connect to
	fdLife     = 4 // the agent's: it reads EOF when the guard has died
	fdFolder   = 5 // the agent's: to send the guard the folder to remove
)

// Main runs a job agent and exits, if Spawn started this process as one. Otherwise it does nothing.
// Programs that start job agents call it first: an agent is another process of the same program.
func Main() {
	if len(os.Args) < 2 || filepath.Base(os.Args[0]) != processName {
		return
	}
	os.Exit(run(os.Args[1]))
}

func run(role string) int {
	err := fmt.Errorf("it is not for interactive use: %q", role)
	switch role {
	case roleGuard:
		err = guard()
	case roleServe:
		err = runAgent()
	case roleSweep:
		err = sweep()
	case roleRemove:
		err = removeFiles(strings.Join(os.Args[2:], " "))
	case roleOrphans:
		err = orphans(os.Args[2:])
	case roleKill:
		err = killTree(strings.Join(os.Args[2:], " "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, processName+":", err)
		return 1
	}
	return 0
}

// guard starts the agent and waits for its end; then it ends what is left of the job.
func guard() error {
	runtime.LockOSThread() // restrict applies to the thread that starts the agent
	if err := restrict(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // the agent ends the job on these
	listener := os.NewFile(fdListener, "listener")                 // kept open to the end, which a helper notices
	lifeTheirs, life, err := os.Pipe()
	if err != nil {
		return err
	}
	defer life.Close()
	folder, folderTheirs, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := reexec(roleServe)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	cmd.ExtraFiles = []*os.File{listener, lifeTheirs, folderTheirs}
	if err := cmd.Start(); err != nil {
		return err
	}
	lifeTheirs.Close()
	folderTheirs.Close()
	await(cmd.Process.Pid)
	dir := make([]byte, 4096)
	n, _ := folder.Read(dir) // nothing if there was no folder yet
	endOrphans()
	if n > 0 {
		return RemoveAll(strings.TrimSuffix(string(dir[:n]), "\n"))
	}
	return nil
}

// tellGuard makes the guard remove a folder when everything has ended.
func tellGuard(dir string) {
	f := os.NewFile(fdFolder, "folder")
	fmt.Fprintln(f, dir) // fails when the guard was killed
	f.Close()
}

// runAgent runs the agent's process.
func runAgent() error {
	for fd := fdListener; fd <= fdFolder; fd++ {
		syscall.CloseOnExec(fd)
	}
	f := os.NewFile(fdListener, "listener")
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return err
	}
	unixLn, ok := ln.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("descriptor %d is no Unix socket", fdListener)
	}
	unixLn.SetUnlinkOnClose(false) // its path belongs to the helper
	dead := make(chan struct{})
	go func() { // ends with the guard
		os.NewFile(fdLife, "life").Read(make([]byte, 1))
		close(dead)
	}()
	serve(unixLn, os.Getppid(), dead)
	return nil
}

// reexec returns a command that runs this program in another role.
func reexec(role string) *exec.Cmd {
	cmd := &exec.Cmd{Path: executable(), Args: []string{processName, role}, Dir: "/"}
	return cmd
}
