package rawcap

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const stageKey = "RAWCAP_TEST"

// TestMain makes this binary the two programs of the test: one that drops the capability and starts
// itself again, and one that reports whether it has it.
func TestMain(m *testing.M) {
	switch os.Getenv(stageKey) {
	case "":
		os.Exit(m.Run())
	case "exec":
		os.Setenv(stageKey, "tell")
		os.Stderr.WriteString(Exec([]string{"/proc/self/exe"}, os.Environ()).Error())
		os.Exit(1)
	case "tell":
		held, err := Held(os.Getpid())
		switch {
		case err != nil:
			os.Stdout.WriteString(err.Error())
		case held:
			os.Stdout.WriteString("held")
		default:
			os.Stdout.WriteString("not held")
		}
	}
}

func TestExec(t *testing.T) {
	held, err := Held(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"exec": "not held", "tell": "not held"}
	if held {
		want["tell"] = "held" // so that the test sees a difference
	} else if os.Getuid() != 0 {
		want["exec"] = "operation not permitted"
	}
	for stage, text := range want {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), stageKey+"="+stage)
		out, _ := cmd.CombinedOutput() // its output says how it ended
		if !strings.HasSuffix(string(out), text) {
			t.Errorf("%s: %q, want %q", stage, out, text)
		}
	}
}

func TestHeldOfNobody(t *testing.T) {
	if _, err := Held(1 << 30); err == nil || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("a process that is not there: %v", err)
	}
}
