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

// processName is the name by which a program knows that it is started as a job agent.
const processName = "isthmus-job-agent"

// What a job agent's first argument may be.
const (
	roleGuard = "guard"
	roleServe = "serve"
)

// Descriptors of a guard and of its agent.
const (
	fdListener = 3 // of the socket at which helpers are heard
	fdLife     = 4 // the agent's: at its end the guard has died
	fdFolder   = 5 // the agent's: by which it tells its guard which folder to remove
)

// Main runs a job agent and ends this process, if it was started as one by Spawn.
// Otherwise it does nothing. Programs that start job agents call it before anything
// else: an agent is another process of the same program.
func Main() {
	if len(os.Args) < 2 || filepath.Base(os.Args[0]) != processName {
		return
	}
	os.Exit(run(os.Args[1]))
}

func run(role string) int {
	err := fmt.Errorf("it is no program for people: %q", role)
	switch role {
	case roleGuard:
		err = guard()
	case roleServe:
		err = runAgent()
	case roleSweep:
		err = sweep(strings.Join(os.Args[2:], " "))
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
	runtime.LockOSThread() // restrict is about the thread that starts the agent
	if err := restrict(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // the agent ends the job for them
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
	n, _ := folder.Read(dir) // nothing where there was none yet
	endOrphans()
	if n > 0 {
		return RemoveAll(strings.TrimSuffix(string(dir[:n]), "\n"))
	}
	return nil
}

// tellGuard has the guard remove a folder when all has ended.
func tellGuard(dir string) {
	f := os.NewFile(fdFolder, "folder")
	fmt.Fprintln(f, dir) // fails when the guard was killed
	f.Close()
}

// runAgent is the life of the agent's process.
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
	unixLn.SetUnlinkOnClose(false) // its path is the helper's
	dead := make(chan struct{})
	go func() { // ends with the guard
		os.NewFile(fdLife, "life").Read(make([]byte, 1))
		close(dead)
	}()
	serve(unixLn, os.Getppid(), dead)
	return nil
}

// reexec is a command that runs this program in another role.
func reexec(role string) *exec.Cmd {
	cmd := &exec.Cmd{Path: executable(), Args: []string{processName, role}, Dir: "/"}
	return cmd
}
