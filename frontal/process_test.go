package frontal

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// enterLab prepares the process for a lab if there can be one.
var enterLab = func() {}

// TestMain lets this binary be the daemon, so that a test can run it as a separate process.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_FRONTAL") != "" {
		daemon.Main(Spec())
	}
	enterLab()
	os.Exit(m.Run())
}

// daemonOf returns the command of the daemon with credentials for id.
func daemonOf(t *testing.T, authority *ca.CA, id control.Identity, flags ...string) *exec.Cmd {
	t.Helper()
	files, err := authority.Write(t.TempDir(), id, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA, "--listen", "127.0.0.1:0", "--site", "sitea",
	}, flags...)...)
	cmd.Env = append(os.Environ(), "BE_THE_FRONTAL=yes")
	return cmd
}

// TestProcess runs the daemon by its flags. With a broker that is down at the
// start it serves all the same, says so to who asks, and ends cleanly.
func TestProcess(t *testing.T) {
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	gone := testkit.Listen(t)
	gone.Close()
	p := daemontest.Start(t, daemonOf(t, authority, control.Identity{Role: control.RoleFrontal, Site: "sitea"}, "--broker", gone.Addr().String(), "--patience", "0s"))
	creds, err := authority.Credentials(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	helper := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer helper.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := helper.Dial(ctx, control.DialConfig{Addr: p.Facts["listen"], Role: control.RoleFrontal})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := controlpb.NewDirectoryClient(s.Conn()).Resolve(ctx, &controlpb.ResolveRequest{Questions: []*controlpb.Question{{Process: control.ProcessToPB(proc(9))}}})
	if err != nil {
		t.Fatal(err)
	}
	fault := control.FaultErr(resp.Answers[0].Fault)
	if want := `^frontal sitea has no session with the broker at \S+ since \d\d:\d\d:\d\d: (refused: nothing listens there, or a firewall resets|the first try has not ended)$`; !errors.Is(fault, overlay.ErrUnreachable) || !regexp.MustCompile(want).MatchString(fault.Error()) {
		t.Errorf("got %v, want %s", fault, want)
	}
	p.Stop()
}

// TestProcessWithAForeignCertificate does not start, and says why.
func TestProcessWithAForeignCertificate(t *testing.T) {
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	out, err := daemonOf(t, authority, control.Identity{Role: control.RoleFrontal, Site: "siteb"}, "--broker", "192.0.2.1:443").CombinedOutput()
	const want = "it is the certificate of frontal siteb, and the key site says sitea"
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s", err, out)
	}
}
