package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/doctor"
)

// doctorBound is what a run may take, whatever is broken.
const doctorBound = 10 * time.Second

// doctorBound is doctorBound and what the lab's longest way adds, of which the doctor takes some
// round trips.
func (w *world) doctorBound() time.Duration {
	longest := time.Duration(0)
	for _, s := range w.Lab.Shapes() {
		longest = max(longest, 2*s.Delay)
	}
	return doctorBound + 16*longest
}

// doctor runs `isthmus doctor` where a daemon runs, with the daemon's own
// settings, and returns its report. It must keep its bound and end with the
// status that it reports. Several may run at once.
func (w *world) doctor(daemon string, words ...string) doctor.Report {
	w.t.Helper()
	return w.doctorWith(daemon, append([]string{"--config", w.settings(daemon)}, words...)...)
}

func (w *world) doctorWith(daemon string, words ...string) doctor.Report {
	w.t.Helper()
	start := time.Now()
	cmd := w.Daemon(daemon).Host.Command(w.ctx, isthmus(w.t, ""), append([]string{"doctor", "--json"}, words...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Errorf("doctor on %s: %v", daemon, err)
		return doctor.Report{}
	}
	took := time.Since(start)
	if took > w.doctorBound() {
		w.t.Errorf("doctor on %s took %v", daemon, took)
	}
	w.t.Logf("doctor on %s took %v", daemon, took.Round(10*time.Millisecond))
	var r doctor.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		w.t.Errorf("doctor on %s: %v; it wrote %s%s", daemon, err, stdout.Bytes(), stderr.Bytes())
	}
	if got := cmd.ProcessState.ExitCode(); got != r.Exit {
		w.t.Errorf("doctor on %s ended with status %d and reports %d", daemon, got, r.Exit)
	}
	return r
}

// causes are the classes of a report's failures and warnings, each once.
func causes(r doctor.Report) []string {
	var all []string
	for _, f := range r.Findings {
		if f.Status == doctor.Failed || f.Status == doctor.Warning {
			all = append(all, f.Class.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func printed(r doctor.Report) string {
	var b bytes.Buffer
	r.Print(&b, true)
	return b.String()
}

// finds runs the doctor and compares the causes it names, and what else its
// report says. It must not fail.
func (w *world) finds(daemon, want string, details ...string) {
	w.t.Helper()
	r := w.doctor(daemon)
	for _, d := range details {
		if !strings.Contains(printed(r), d) {
			w.t.Errorf("%s: the report does not say %q:\n%s", daemon, d, printed(r))
		}
	}
	if err := named(r); err != nil {
		w.t.Errorf("%s: %v:\n%s", daemon, err, printed(r))
	}
	if got := strings.Join(causes(r), " "); got != want || r.Exit != 0 {
		w.t.Errorf("%s: found %q, status %d; want %q:\n%s", daemon, got, r.Exit, want, printed(r))
	}
}

// saysRate stands before the rate that datagrams are held to.
const saysRate = "datagrams get through at about "

// named checks the rate that a report names, if it names one: it is as exact as
// can be.
func named(r doctor.Report) error {
	_, text, ok := strings.Cut(printed(r), saysRate)
	if !ok {
		return nil
	}
	var rate float64
	if _, err := fmt.Sscanf(text, "%g Mb/s", &rate); err != nil {
		return err
	}
	if rate < 0.66 || rate > 1.5 {
		return fmt.Errorf("datagrams are held to 1 Mb/s, not to %g", rate)
	}
	return nil
}

// settings is the file of a daemon's settings.
func (w *world) settings(daemon string) string {
	return filepath.Join(filepath.Dir(w.Socket("x")), strings.NewReplacer(" ", "-", "/", "-").Replace(daemon)+".yaml")
}
