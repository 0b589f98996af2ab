package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
)

// runAudit runs the command and returns its output and its exit status.
func runAudit(args ...string) (out, notes string, status int) {
	var o, e bytes.Buffer
	commands := []*cli.Command{auditCommand()}
	cmdline.Strict("", commands)
	app := &cli.App{Commands: commands, Writer: &o, ErrWriter: &e, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"isthmus", "audit"}, args...))
	if err != nil {
		status = 1
		if coder, ok := err.(cli.ExitCoder); ok {
			status = coder.ExitCode()
		}
		e.WriteString(err.Error())
	}
	return o.String(), e.String(), status
}

// writeLog writes a log to the folder.
func writeLog(t *testing.T, folder, daemon string, records ...audit.Record) {
	t.Helper()
	l, err := audit.Open(audit.Config{Folder: folder, Size: 1 << 20, OnFailure: "go-on"}, daemon, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := l.Start()
	for _, r := range records {
		l.Append(r)
	}
	stop()
}

func TestAuditAnswersWhoMovedWhat(t *testing.T) {
	folder := t.TempDir()
	writeLog(t, folder, "broker b",
		audit.Record{Event: audit.Decision, Effect: audit.Permitted, Link: "1", User: "alice", Project: "climate", Sites: []string{"north", "south"}, Technique: "relay"},
		audit.Record{Event: audit.Decision, Effect: audit.Refused, Link: "2", User: "bob", Rule: "no-bob", Reason: "go away\x1b[2J"},
	)
	writeLog(t, folder, "proxy p1",
		audit.Record{Event: audit.LinkEnd, Link: "1", Sent: 2e12, Received: 5, Seconds: 60},
		audit.Record{Event: audit.LinkEnd, Link: "3", User: "carol", Sent: 1e9},
	)
	writeLog(t, folder, "frontal north", audit.Record{Event: audit.LinkEnd, Link: "1", Sent: 2e12, Received: 5})

	out, notes, status := runAudit("query", "--sum", "bytes", "--by", "user,project,sites", "--over", "2TB", folder)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != 0 || notes != "" || len(lines) != 2 || strings.Join(strings.Fields(lines[1]), " ") != "alice climate north south 2000000000005 1 60" {
		t.Errorf("status %d, %s\n%s", status, notes, out)
	}
	out, _, status = runAudit("query", "--json", "--event", "decision", "--effect", "refused", folder)
	var r audit.Record
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || r.User != "bob" || r.Rule != "no-bob" {
		t.Errorf("status %d: %s: %v", status, out, err)
	}
	out, _, _ = runAudit("query", "--user", "bob", folder)
	if strings.Contains(out, "\x1b") || !strings.Contains(out, "decision refused") || !strings.Contains(out, "no-bob") {
		t.Errorf("%q", out)
	}
	if out, _, _ := runAudit("query", "--on", "2001-01-01", folder); strings.Count(out, "\n") != 1 {
		t.Errorf("of a day long ago: %s", out)
	}
	for want, args := range map[string][]string{
		"name the files":     {"query"},
		"want one of bytes":  {"query", "--sum", "byte", folder},
		"cannot group by":    {"query", "--sum", "bytes", "--by", "usr", folder},
		"is not a size":      {"query", "--sum", "bytes", "--over", "many", folder},
		"want a day":         {"query", "--on", "Tuesday", folder},
		"want a time":        {"query", "--from", "Tuesday", folder},
		"apply to sums":      {"query", "--by", "user", folder},
		"not the head":       {"verify", "--head", "x", folder},
		"is for one log":     {"verify", "--head", "1:" + strings.Repeat("a", 64), folder},
		"syntax error":       {"query", "--user", "[", folder},
		"either --on or":     {"query", "--on", "2026-11-17", "--to", "2026-11-18", folder},
		"name the files of ": {"verify"},
	} {
		if _, notes, status := runAudit(args...); status != 2 || !strings.Contains(notes, want) {
			t.Errorf("%v: status %d, %q, want %q", args, status, notes, want)
		}
	}
}

func TestAuditVerify(t *testing.T) {
	folder := t.TempDir()
	writeLog(t, folder, "proxy p1", audit.Record{Event: audit.LinkEnd, User: "alice", Sent: 2e12})
	out, notes, status := runAudit("verify", folder)
	if status != 0 || notes != "" || !strings.Contains(out, "proxy-p1: whole, 4 records from 1 on in 1 files, head 4:") {
		t.Errorf("status %d, %s\n%s", status, notes, out)
	}
	head := strings.TrimSpace(out[strings.Index(out, "head ")+5:])
	if _, notes, status := runAudit("verify", "--head", head, folder); status != 0 {
		t.Errorf("with the head: status %d, %s", status, notes)
	}
	files, _ := filepath.Glob(folder + "/*.jsonl")
	text, _ := os.ReadFile(files[0])
	os.WriteFile(files[0], bytes.Replace(text, []byte("alice"), []byte("bob"), 1), 0o600)
	out, notes, status = runAudit("verify", "--json", files[0])
	var report audit.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 1 || len(report.Faults) != 1 || !strings.Contains(notes, "logs were modified") {
		t.Errorf("changed: status %d, %s\n%s", status, notes, out)
	}
	if _, _, status := runAudit("verify", t.TempDir()); status != 1 {
		t.Errorf("an empty folder: status %d", status)
	}
}
