package labtest

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

	"github.com/isthmus-grid/isthmus/internal/support/doctor"
)

// doctorBound is the maximum duration of a run, whatever is broken: three times what the doctor
// promises, for a machine that is busy with other tests.
const doctorBound = 30 * time.Second

// doctorBound returns doctorBound plus the time for the lab's longest path, of which the doctor
// takes some round trips.
func (w *World) doctorBound() time.Duration {
	longest := time.Duration(0)
	for _, s := range w.Lab.Shapes() {
		longest = max(longest, 2*s.Delay)
	}
	return doctorBound + 16*longest
}

// Doctor runs `isthmus doctor` where a daemon runs, with the daemon's own settings, and returns its
// report. It must end within its bound with the status that it reports. Several may run at once.
func (w *World) Doctor(daemon string, words ...string) doctor.Report {
	w.T.Helper()
	return w.DoctorWith(daemon, append([]string{"--config", w.SettingsFile(daemon)}, words...)...)
}

// DoctorWith is Doctor with only the given arguments.
func (w *World) DoctorWith(daemon string, words ...string) doctor.Report {
	w.T.Helper()
	start := time.Now()
	cmd := w.Daemon(daemon).Host.Command(w.Ctx, Program(w.T, ""), append([]string{"doctor", "--json"}, words...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.T.Errorf("doctor on %s: %v", daemon, err)
		return doctor.Report{}
	}
	took := time.Since(start)
	if took > w.doctorBound() {
		w.T.Errorf("doctor on %s took %v", daemon, took)
	}
	w.T.Logf("doctor on %s took %v", daemon, took.Round(10*time.Millisecond))
	var r doctor.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		w.T.Errorf("doctor on %s: %v; it wrote %s%s", daemon, err, stdout.Bytes(), stderr.Bytes())
	}
	if got := cmd.ProcessState.ExitCode(); got != r.Exit {
		w.T.Errorf("doctor on %s ended with status %d and reports %d", daemon, got, r.Exit)
	}
	return r
}

// Causes returns the classes of a report's failures and warnings, each once.
func Causes(r doctor.Report) []string {
	var all []string
	for _, f := range r.Findings {
		if f.Status == doctor.Failed || f.Status == doctor.Warning {
			all = append(all, f.Class.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Printed returns a report as printed for users.
func Printed(r doctor.Report) string {
	var b bytes.Buffer
	r.Print(&b, true)
	return b.String()
}

// DoctorFinds runs the doctor and compares the causes it names, and other parts of its report. The
// doctor must not fail.
func (w *World) DoctorFinds(daemon, want string, details ...string) {
	w.T.Helper()
	w.DoctorReports(daemon, func() doctor.Report { return w.Doctor(daemon) }, func(r doctor.Report) error {
		errs := []error{named(r)}
		for _, d := range details {
			if !strings.Contains(Printed(r), d) {
				errs = append(errs, fmt.Errorf("the report does not say %q", d))
			}
		}
		if got := strings.Join(Causes(r), " "); got != want || r.Exit != 0 {
			errs = append(errs, fmt.Errorf("found %q, status %d; want %q", got, r.Exit, want))
		}
		return errors.Join(errs...)
	})
}

// DoctorReports runs the doctor and fails the test with what judge returns.
func (w *World) DoctorReports(daemon string, run func() doctor.Report, judge func(doctor.Report) error) {
	w.T.Helper()
	r := run()
	if err := judge(r); err != nil {
		w.T.Errorf("%s: %v:\n%s", daemon, err, Printed(r))
	}
}

// RateText precedes the measured rate limit of datagrams.
const RateText = "datagrams get through at about "

// named checks the rate that a report names, if it names one: it must be as exact as possible.
func named(r doctor.Report) error {
	_, text, ok := strings.Cut(Printed(r), RateText)
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

// SettingsFile returns the file of a daemon's settings.
func (w *World) SettingsFile(daemon string) string {
	return filepath.Join(filepath.Dir(w.Socket("x")), strings.NewReplacer(" ", "-", "/", "-").Replace(daemon)+".yaml")
}
