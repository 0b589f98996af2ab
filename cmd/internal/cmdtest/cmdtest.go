// Package cmdtest makes the tests of a command run it as a shell does: as a process with arguments,
// two outputs and a status. The test binary itself is that process. It keeps no state.
package cmdtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

// mainKey marks, in the environment, a process that is the command.
const mainKey = "ISTHMUS_TEST_MAIN"

// Main is called by TestMain: it runs the tests, or main in a process of Run.
func Main(m *testing.M, main func()) int {
	jobagent.Main()
	if os.Getenv(mainKey) != "" {
		main()
		return 0
	}
	config, err := os.MkdirTemp("", "isthmus-config-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(config)
	os.Setenv("XDG_CONFIG_HOME", config) // the grids of whoever runs the tests are not theirs
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "ISTHMUS_") {
			os.Unsetenv(name)
		}
	}
	return m.Run()
}

// Environment is that of a process of the test binary that is the command, which writes for people.
func Environment() []string { return append(os.Environ(), mainKey+"=1", "COLUMNS=100") }

// Run runs the command in folder dir. It must end by itself.
func Run(t *testing.T, dir string, words ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, words...)
	cmd.Dir = dir
	cmd.Env = Environment()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", words, err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}
