//go:build system

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ordinaryUser is the user nobody, who owns nothing.
const ordinaryUser = 65534

func init() {
	helpers = map[string]func(){
		"exit":    func() { os.Exit(7) },
		"panic":   func() { panic("on purpose") },
		"killed":  func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) },
		"stay":    helperStay,
		"term":    helperTerm,
		"orphan":  helperOrphan,
		"refused": helperRefused,
		"masked":  helperMasked,
		"build":   helperBuild,
	}
}

// helper prepares this program as a new caller of Main.
func helper(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), helperKey+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// asOrdinaryUser makes cmd run as nobody where this process can change its user;
// in a user namespace it is an ordinary user already.
func asOrdinaryUser(cmd *exec.Cmd) {
	cmd.Dir = "/"
	if !inUserNamespace() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		helper string
		want   int
	}{{"exit", 7}, {"panic", 2}, {"killed", 128 + 9}} {
		cmd := helper(c.helper)
		cmd.Stderr = nil // the panic is intended
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%s: status %d, want %d", c.helper, got, c.want)
		}
	}
}

// helperTerm prints that it is ready, and ends with 9 when it receives SIGTERM.
func helperTerm() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("ready")
	<-term
	os.Exit(9)
}

func TestSignalsArePassedOn(t *testing.T) {
	cmd := helper("term")
	startUntilReady(t, cmd)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 9 {
		t.Errorf("status %d, want 9", got)
	}
}

// startUntilReady starts cmd and returns when it has printed "ready".
func startUntilReady(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("the helper said %q (%v), not ready", line, err)
	}
}

// helperOrphan leaves a child to init and ends with 0 when init has reaped it.
func helperOrphan() {
	out, err := exec.Command("sh", "-c", "sleep 0.1 >/dev/null & echo $!").Output()
	if err != nil {
		panic(err)
	}
	pid := strings.TrimSpace(string(out))
	for range 500 {
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond) // until init has had its turn, five seconds at most
	}
	panic("process " + pid + " is still a zombie")
}

func TestOrphansAreReaped(t *testing.T) {
	if err := helper("orphan").Run(); err != nil {
		t.Error(err)
	}
}

// helperStay builds a lab, runs processes in it, and waits to be killed.
func helperStay() {
	l, err := Up(context.Background(), twoSites())
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "lab-leftover")
	if err == nil {
		err = os.WriteFile(dir+"/file", []byte("x"), 0o600)
	}
	if err != nil {
		panic(err)
	}
	for _, h := range l.Hosts() {
		if err := h.Command(context.Background(), "sh", "-c", "sleep 1000 & sleep 1000").Start(); err != nil {
			panic(err)
		}
	}
	fmt.Println("ready")
	select {}
}

// TestKillLeavesNothing kills a run from outside with SIGKILL and looks for anything left:
// processes, network namespaces, mounts and files.
func TestKillLeavesNothing(t *testing.T) {
	for _, user := range []string{"root", "ordinary"} {
		t.Run(user, func(t *testing.T) {
			before := traces(t)
			cmd := helper("stay")
			if user == "ordinary" {
				asOrdinaryUser(cmd)
			}
			startUntilReady(t, cmd)
			if during := traces(t); len(during) < len(before)+10 {
				t.Fatalf("a lab of 8 hosts leaves %d traces while it runs, %d without; the search finds nothing", len(during), len(before))
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			var after []string
			for range 500 {
				if after = extra(traces(t), before); len(after) == 0 {
					return
				}
				time.Sleep(10 * time.Millisecond) // the kernel ends the others in its own time; five seconds at most
			}
			t.Errorf("left behind: %q", after)
		})
	}
}

func extra(got, before []string) []string {
	return slices.DeleteFunc(got, func(s string) bool { return slices.Contains(before, s) })
}

// traces lists the visible processes, network namespaces (of threads and open files), mounts, and
// temporary files.
func traces(t *testing.T) []string {
	t.Helper()
	seen := make(map[string]bool)
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if cmdline, err := os.ReadFile(p + "/cmdline"); err == nil && len(cmdline) > 0 {
			seen["process "+p] = true
		}
		links, _ := filepath.Glob(p + "/task/*/ns/net")
		files, _ := filepath.Glob(p + "/fd/*")
		for _, link := range append(links, files...) {
			if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "net:[") {
				seen[to] = true
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		seen["mount "+line] = true
	}
	for _, dir := range []string{os.TempDir(), runDir, "/tmp"} {
		names, _ := filepath.Glob(dir + "/*lab*")
		for _, n := range names {
			seen["file "+n] = true
		}
	}
	all := make([]string, 0, len(seen))
	for s := range seen {
		all = append(all, s)
	}
	return all
}

// helperRefused forbids user namespaces in its own one, and prints the error of a further Enter.
func helperRefused() {
	if !inUserNamespace() {
		panic("this would forbid user namespaces to the whole machine")
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		panic(err)
	}
	_, err := startInit(true, false)
	fmt.Println(refusal(err, readText))
}

func TestRefusalByTheKernel(t *testing.T) {
	cmd := helper("refused")
	asOrdinaryUser(cmd)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=", "no space left", "still do"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}

// helperMasked hides a part of /proc, as containers do, and builds a lab behind that as an ordinary
// user: the kernel then refuses a new /proc.
func helperMasked() {
	if err := unix.Mount("tmpfs", "/proc/fs", "tmpfs", 0, ""); err != nil {
		panic(err)
	}
	cmd := helper("build")
	asOrdinaryUser(cmd)
	out, err := cmd.Output()
	if err != nil {
		panic(err)
	}
	if want := procMounts(); string(out) != want {
		panic(fmt.Sprintf("it has %q, its maker %q: /proc was not refused and this shows nothing", out, want))
	}
}

// helperBuild builds a lab and prints where /proc is mounted.
func helperBuild() {
	l, err := Up(context.Background(), twoSites())
	if err != nil {
		panic(err)
	}
	defer l.Close()
	out, err := l.Host("alpha/n1").Command(context.Background(), "cat", "/proc/net/fib_trie").Output()
	if err != nil || !strings.Contains(string(out), "10.1.0.11") {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	fmt.Print(procMounts())
}

func procMounts() string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%d mounts on /proc", strings.Count(string(text), " /proc "))
}

func TestMaskedProc(t *testing.T) {
	if out, err := helper("masked").Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOrdinaryUser runs the tests that build labs again as an ordinary user.
func TestOrdinaryUser(t *testing.T) {
	if inUserNamespace() {
		t.Log("all tests run as an ordinary user this time")
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=5m", "-test.run=^(TestPresetTruth|TestBehaviour|TestMappingDies|TestIPv6Meeting|TestConnectProxy|TestWANShapes|TestCommand.*|TestIsolated)$")
	asOrdinaryUser(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestPresetTruth") {
		t.Errorf("it did not run TestPresetTruth:\n%s", out)
	}
}

// TestIsolated checks the contents of the namespaces.
func TestIsolated(t *testing.T) {
	if os.Getppid() != 1 {
		t.Errorf("the parent is process %d, not init", os.Getppid())
	}
	if got := os.TempDir(); !strings.HasPrefix(got, Dir()) {
		t.Errorf("temporary files go to %s, outside %s", got, Dir())
	}
	if os.Getenv(stageKey) != "" {
		t.Errorf("children would see %s", stageKey)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(Dir(), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Errorf("%s: type %#x, %v; want a tmpfs", Dir(), fs.Type, err)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Cur < lim.Max {
		t.Errorf("open files: %+v, %v", lim, err)
	}
	if outerPID == 0 {
		t.Error("the number of this process outside is unknown")
	}
}
