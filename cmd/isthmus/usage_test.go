package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m, main)) }

// result is the outcome of a command.
type result struct {
	stdout, stderr string
	status         int
}

// isthmus runs the command in folder dir. It must end by itself.
func isthmus(t *testing.T, dir string, words ...string) result {
	t.Helper()
	stdout, stderr, status := cmdtest.Run(t, dir, words...)
	return result{stdout, stderr, status}
}

// TestMistakesOnTheCommandLine: one line that describes the mistake, on stderr, and status 2.
func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	admin := []string{"--broker", "host:443", "--cert", "c", "--tls-key", "k", "--ca", "a"}
	for _, tc := range []struct {
		words []string
		text  string
	}{
		{[]string{"frobnicate"}, `unknown command "frobnicate" (--help lists them)`},
		{[]string{"--frobnicate"}, `unknown flag --frobnicate (--help lists the flags)`},
		{[]string{"demo", "--json"}, "this command is now: isthmus-lab demo --json"},
		{[]string{"lab", "matrix", "--presets", "open"}, "this command is now: isthmus-lab matrix --presets open"},
		{[]string{"lab"}, "this command is now: isthmus-lab"},
		{[]string{"bench", "p2p"}, "this command is now: isthmus-lab bench p2p"},
		{[]string{"job", "frobnicate"}, `job: unknown command "frobnicate" (--help lists them)`},
		{[]string{"example", "is", "--class", "W"}, "this command is now: isthmus-lab example is --class W"},

		{[]string{"run"}, "run: give either -n or --ranks"},
		{[]string{"run", "--helper", "h.sock", "--hosts", "n1@a", "--hostfile", "f", "true"}, "run: give either --hosts or --hostfile"},
		{[]string{"run", "--helper", "h.sock", "--hostfile", "f", "true"}, "run: --hostfile: open f: no such file or directory"},
		{[]string{"run", "--np", "0", "true"}, "run: 0 processes: want at least 1"},
		{[]string{"hosts"}, "hosts: name this node's helper with --helper or ISTHMUS_HELPER"},
		{[]string{"hosts", "now"}, `hosts: "now" is not expected here; see --help`},
		{[]string{"run", "-n", "2", "--ranks", "0-1", "true"}, "run: give either -n or --ranks"},
		{[]string{"run", "-n", "2"}, "run: no program to run"},
		{[]string{"run", "-n", "0", "true"}, "run: 0 processes: want at least 1"},
		{[]string{"run", "-n", "some", "true"}, `run: invalid value "some" for flag -n: parse error (--help lists the flags)`},
		{[]string{"statsu"}, `unknown command "statsu"; did you mean status? (--help lists them)`},
		{[]string{"rnu", "-n", "2", "x"}, `unknown command "rnu"; did you mean run? (--help lists them)`},
		{[]string{"sp"}, `unknown command "sp"; did you mean ps? (--help lists them)`},
		{[]string{"abc"}, `unknown command "abc" (--help lists them)`},
		{[]string{"ca", "isue"}, `ca: unknown command "isue"; did you mean issue? (--help lists them)`},
		{[]string{"completion"}, "completion: want bash | zsh | fish"},
		{[]string{"completion", "csh"}, `completion: unknown shell "csh": want bash, zsh or fish`},

		{[]string{"run", "--rank", "0", "true"}, "run: unknown flag --rank; did you mean --ranks? (--help lists the flags)"},
		{[]string{"run", "--ranks", "3-1", "true"}, `run: --ranks: ranks "3-1": want FIRST-LAST, such as 0-3`},
		{[]string{"run", "--ranks", "0-1", "--size", "4", "true"}, "run: the job spans several nodes, which all need the same --key; create one with: isthmus job new NAME"},
		{[]string{"run", "-n", "4", "--size", "2", "true"}, "run: ranks 0-3 do not lie in a job of 2"},
		{[]string{"run", "-n", "4", "--groups", "a:1,b:2", "true"}, `run: --groups: groups "a:1,b:2": 3 ranks in all groups, and 4 in the job`},

		{[]string{"run", "--helper", "s", "-n", "2", "--send-deterministic", "true"}, "run: --send-deterministic is for jobs with replicas: give --replicas 2 or more, or omit it"},
		{[]string{"run", "--helper", "s", "-n", "2", "--replace", "-1", "true"}, "run: --replace -1: want the number of processes that may be replaced, 0 for none"},
		{[]string{"run", "--helper", "s", "-n", "2", "--replace", "1", "-r", "2", "--independent", "true"}, "run: --replace: with --independent there is no replica from which a new one could have its state: omit one of them"},
		{[]string{"run", "--helper", "s", "-n", "2", "--replace", "63", "-r", "2", "true"}, "run: --replace 63: with --replicas at most 62"},
		{[]string{"run", "--helper", "s", "-n", "2", "--replace", "1", "--show-map", "true"}, "run: --replace: --show-map shows no processes that replace others: omit one of them"},
		{[]string{"run", "-n", "2", "--replace", "1", "true"}, "run: --replace is for jobs over the grid: name this node's helper with --helper or ISTHMUS_HELPER, and omit --ranks and --key"},
		{[]string{"run", "-n", "2", "--replicas", "0", "true"}, "run: --replicas 0: want at least 1, which means no replication"},
		{[]string{"run", "--helper", "s", "-n", "2", "--copies", "-1", "true"}, "run: --replicas -1: want at least 1, which means no replication"},
		{[]string{"run", "-n", "2", "-r", "2", "--replica-table", "both", "true"}, "run: --replica-table both: want one of parallel, primary"},
		{[]string{"run", "-n", "2", "-r", "2", "true"}, "run: --replicas is for jobs over the grid: name this node's helper with --helper or ISTHMUS_HELPER, and omit --ranks and --key"},
		{[]string{"run", "--helper", "s", "-n", "2", "-r", "2", "--survive", "true"}, "run: --survive: with --replicas the replicas of a rank go on for it, and a program cannot go on without a rank that has lost all of them: omit --survive"},
		{[]string{"run", "--helper", "s", "-n", "2", "-r", "2", "--replica-table", "both", "true"}, "run: --replica-table both: want one of parallel, primary"},
		{[]string{"run", "--helper", "s", "-n", "2", "--copies", "2", "--independent", "--replica-table", "primary", "true"}, "run: --replica-table is for the message library, which --independent says the program does not use: omit one of them"},
		{[]string{"run", "--helper", "s", "-r", "2", "--hosts", "a/n1:2,b/n1:1", "true"}, "run: --hosts has 3 processes, which --replicas 2 cannot share: want a multiple of 2"},
		{[]string{"run", "--helper", "s", "-n", "2", "-r", "2", "--hosts", "a/n1:2", "true"}, "run: --hosts has 2 processes, which contradicts -n 2 --replicas 2: they need 4"},
		{[]string{"run", "--helper", "s", "--pin-rank0", "--hosts", "a/n1:2", "true"}, "run: --pin-rank0: --profile, or --hosts with numbers of ranks, says already where rank 0 runs: omit one of them"},

		{[]string{"run", "--detach", "--ranks", "0", "true"}, "run: --detach is for whole jobs, and --ranks starts a part of one: omit one of them"},
		{[]string{"run", "--detach", "-n", "1", "--dry-run", "true"}, "run: --detach: --dry-run starts nothing: omit one of them"},
		{[]string{"run", "--detach", "-n", "1", "--output-limit", "1KiB", "true"}, "run: --output-limit 1KiB: want a size of 1MiB or more"},
		{[]string{"run", "-n", "1", "--stdin", "x", "true"}, "run: --stdin goes with --detach"},
		{[]string{"attach"}, "attach: want JOB"},
		{[]string{"top"}, "top: name this node's helper with --helper or ISTHMUS_HELPER, or log in as an admin: isthmus login --help"},
		{[]string{"top", "--every", "0s"}, "top: --every: want 100ms or more"},
		{[]string{"top", "--frontal", "f:1"}, "top: a frontal has no picture to show: isthmus status --frontal f:1"},
		{[]string{"top", "--helper", "h.sock"}, "top: needs a terminal: --once prints the picture once; isthmus status, hosts and ps --json are for programs"},
		{[]string{"ps"}, "ps: name this node's helper with --helper or ISTHMUS_HELPER"},

		{[]string{"job", "new"}, "job new: want NAME"},
		{[]string{"job", "new", "a", "b"}, "job new: want NAME"},
		{[]string{"job", "new", "Upper"}, `job new: job name "Upper": byte 0 is 'U'; allowed are a-z, 0-9 and, after the first, '-', '_' and '.'`},
		{[]string{"ca", "init"}, "ca init: want NAME"},
		{[]string{"ca", "issue", "frontal"}, "ca issue: want ROLE NAME"},
		{[]string{"ca", "issue", "king", "arthur"}, `ca issue: identity "king arthur": unknown role; want one of ["broker" "frontal" "proxy" "helper" "admin" "user" "scheduler"]`},
		{[]string{"job", "grant", "--cert", "x", "k"}, "job grant: give both --cert and --tls-key, or neither"},
		{[]string{"job", "grant", "--valid", "0s", "k"}, "job grant: --valid 0s: want more than 0 and at most 744h0m0s"},
		{[]string{"run", "-n", "2", "--user-cert", "x", "--user-key", "y", "true"}, "run: --user-cert is for jobs with a helper: without a helper, nothing checks on whose behalf a job runs"},
		{[]string{"ca", "issue", "--project", "p1", "frontal", "sitea"}, "ca issue: --project: frontal sitea has no projects; only users have"},
		{[]string{"ca", "issue", "--project", "p1,", "user", "alice"}, "ca issue: --project: project name is empty"},
		{[]string{"ca", "request", "frontal"}, "ca request: want ROLE NAME"},
		{[]string{"ca", "sign", "frontal", "sitea"}, "ca sign: want REQUEST ROLE NAME"},
		{[]string{"ca", "sign", "--valid", "0s", "r.csr", "frontal", "sitea"}, "ca sign: --valid must be positive"},
		{[]string{"ca", "sign", "--project", "p1", "r.csr", "frontal", "sitea"}, "ca sign: --project: frontal sitea has no projects; only users have"},
		{[]string{"ca", "issuer", "--roles", "king"}, `ca issuer: --roles: unknown role "king": want one of ["broker" "frontal" "proxy" "helper" "admin" "user" "scheduler"]`},
		{[]string{"ca", "token", "frontal"}, "ca token: want ROLE NAME"},
		{[]string{"ca", "token", "--uses", "0", "frontal", "sitea"}, "ca token: --uses 0: want 1 or more"},
		{[]string{"ca", "enroll", "--broker", "b:1"}, "ca enroll: give --token: the administrator of the grid's CA makes one with isthmus ca token"},
		{[]string{"ca", "enroll", "--broker", "b:1", "--oidc-token", "t"}, "ca enroll: give --ca, the certificate of the grid's CA: the token is sent only to a broker of that grid"},
		{[]string{"ca", "enroll", "--broker", "b:1", "--oidc-token", "t", "--token", "x"}, "ca enroll: --oidc-token goes with neither --token (or ISTHMUS_TOKEN) nor --node"},
		{[]string{"ca", "renew"}, "ca renew: give either --broker or --frontal"},
		{[]string{"ca", "renew", "--broker", "b:1"}, "ca renew: give --cert"},
		{[]string{"ca", "revoke"}, "ca revoke: want ROLE NAME | SERIAL"},
		{[]string{"ca", "revoke", "nobody"}, `ca revoke: "nobody" is no serial number; want hexadecimal digits, or ROLE NAME`},
		{[]string{"ca", "revoke", "king", "arthur"}, `ca revoke: identity "king arthur": unknown role; want one of ["broker" "frontal" "proxy" "helper" "admin" "user" "scheduler"]`},
		{[]string{"ca", "issue", "helper", "sitea"}, `ca issue: node "sitea": want NODE@SITE, such as n1@paris`},
		{[]string{"ca", "issue", "--valid", "0s", "frontal", "sitea"}, "ca issue: --valid must be positive"},
		{[]string{"ca", "issue", "frontal", "sitea", "--out", "x"}, "ca issue: flags come before other words: put --out in front of frontal"},

		{[]string{"status"}, "status: give either --broker or --frontal, or log in once (isthmus login --help)"},
		{append([]string{"status", "--frontal", "host:1"}, admin...), "status: give either --broker or --frontal"},
		{[]string{"status", "--broker", "host"}, "status: --broker host: want HOST:PORT"},
		{[]string{"status", "--broker", "host:443"}, "status: give --cert: this request needs an admin's certificate (isthmus ca issue admin NAME)"},
		{append([]string{"plan"}, admin...), "plan: want ASKER TARGET"},
		{append(append([]string{"plan"}, admin...), "one"), "plan: want ASKER TARGET"},
		{append([]string{"plan", "one", "two"}, admin...), "plan: flags come before other words: put --broker in front of one"},

		{[]string{"broker", "--lesae", "1m"}, "unknown flag --lesae; did you mean --lease? (--help lists them)"},
		{[]string{"helper", "now"}, `"now" is not expected here; settings are flags, see --help`},
	} {
		got := isthmus(t, t.TempDir(), tc.words...)
		if want := "isthmus: " + tc.text + "\n"; got.status != 2 || got.stderr != want || got.stdout != "" {
			t.Errorf("isthmus %s: status %d, stdout %q, stderr\n %q, want\n %q", strings.Join(tc.words, " "), got.status, got.stdout, got.stderr, want)
		}
	}
}

// TestWhatIsWrongOtherwise has status 1: the command line was valid.
func TestWhatIsWrongOtherwise(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	loose := filepath.Join(dir, "loose.key")
	if err := os.WriteFile(loose, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		words []string
		text  string
	}{
		{[]string{"run", "--ranks", "0-1", "--size", "4", "--key", "none.key", "true"}, "job key: stat none.key: no such file or directory"},
		{[]string{"run", "-n", "1", "--key", "loose.key", "true"}, "job key loose.key can be read by others (mode 0644): run chmod 600 loose.key"},
		{[]string{"ca", "issue", "--dir", "none", "frontal", "sitea"}, "CA in none: open none/ca.pem: no such file or directory; make one with `isthmus ca init`"},
		{[]string{"status", "--broker", "host:443", "--cert", "none.pem", "--tls-key", "k", "--ca", "a"}, "status: certificate: open none.pem: no such file or directory\n  next:    see whose certificate that is, and of which CA: openssl x509 -noout -subject -issuer -in\n           none.pem"},
	} {
		got := isthmus(t, dir, tc.words...)
		if want := "isthmus: " + tc.text + "\n"; got.status != 1 || got.stderr != want {
			t.Errorf("isthmus %s: status %d, stderr\n %q, want\n %q", strings.Join(tc.words, " "), got.status, got.stderr, want)
		}
	}
	if got := isthmus(t, dir, "broker", "--check"); got.status != 1 || !strings.Contains(got.stderr, "tls.cert: needs a value") {
		t.Errorf("broker --check: %+v", got)
	}
}

// TestValuesAreLiteral: no value of a flag is split or trimmed, and over the grid a program that is not
// there, or no program, ends with the status that it has without a helper.
func TestValuesAreLiteral(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		words  []string
		status int
		text   string // of the first line
	}{
		{[]string{"--env", "A,B", "true"}, 2, "run: --env: A,B is not set here; give A,B=VALUE"},
		{[]string{"--env", " A ", "true"}, 2, "run: --env:  A  is not set here; give  A =VALUE"},
		{[]string{"--env", "A=1", "--env", "=2,B=3", "true"}, 2, `run: --env: "=2,B=3": want NAME or NAME=VALUE`},
		{[]string{"--limit", "nofile=1,core=2", "true"}, 2, `run: --limit: "nofile=1,core=2": want NAME=NUMBER with one of the names as, core, cpu, data, fsize, memlock, nofile, nproc, stack`},
		{[]string{"--env", "A=1,B", "--input", "a, b", "true"}, 1, "run: input files: lstat a, b: no such file or directory"},
		{[]string{"./none"}, 127, "run: rank 0: program: open ./none: no such file or directory"},
		{[]string{"./plain"}, 126, "run: rank 0: program: exec ./plain: permission denied"},
		{[]string{dir}, 126, "rank 0: program: stage " + dir + ": is not a regular file"},
	} {
		got := isthmus(t, dir, append([]string{"run", "--helper", "s", "-n", "1"}, tc.words...)...)
		first, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimSuffix(got.stderr, "\n"), "\n    ", " "), "\n")
		if got.status != tc.status || !strings.HasSuffix(first, tc.text) || got.stdout != "" {
			t.Errorf("run %q: status %d, want %d; %q, want %q", tc.words, got.status, tc.status, got.stderr, tc.text)
		}
	}
}

func TestRunEndsAsItsRanksDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		words  []string
		status int
		stdout string
		stderr string
	}{
		{[]string{"sh", "-c", "echo hello"}, 0, "[x:0] hello\n", ""},
		{[]string{"sh", "-c", "exit 7"}, 7, "", "isthmus: rank 0: exit status 7\n"},
		{[]string{"/dev/null"}, 126, "", "isthmus: run: rank 0: fork/exec /dev/null: permission denied\n  next:    chmod +x /dev/null\n"},
		{[]string{"sh", "-c", "kill -9 $$"}, 137, "", "isthmus: rank 0: signal: killed\n"},
		{[]string{"./none"}, 127, "", "isthmus: run: rank 0: fork/exec ./none: no such file or directory\n  next:    ls -l ./none: a name with a slash begins at the working folder, or at /\n"},
		{[]string{"help"}, 127, "", "isthmus: run: rank 0: exec: \"help\": executable file not found in $PATH\n  next:    ./help if it is in this folder; any other must be in PATH\n"},
	} {
		got := isthmus(t, t.TempDir(), append([]string{"run", "-n", "1", "--label", "x"}, tc.words...)...)
		if got != (result{tc.stdout, localOne + tc.stderr, tc.status}) {
			t.Errorf("run %q: %+v", tc.words, got)
		}
	}
}

// TestHelp: every command has a help page, on stdout, with status 0.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{
		nil, {"job"}, {"ca"},
		{"--help"}, {"run", "--help"}, {"attach", "--help"}, {"job", "new", "--help"}, {"ca", "init", "--help"}, {"ca", "issue", "--help"},
		{"status", "--help"}, {"plan", "--help"},
		{"broker", "--help"}, {"frontal", "--help"}, {"proxy", "--help"}, {"helper", "--help"},
	} {
		got := isthmus(t, t.TempDir(), words...)
		if got.status != 0 || !strings.HasPrefix(got.stdout, "NAME:\n   isthmus") || got.stderr != "" {
			t.Errorf("isthmus %q: %+v", words, got)
		}
		for line := range strings.Lines(got.stdout) {
			if len(strings.TrimRight(line, "\n")) > 100 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("isthmus %q: a line of %d columns: %s", words, len(line)-1, line)
			}
		}
	}
}

// TestVersion: both ways to ask for the version say the same.
func TestVersion(t *testing.T) {
	flag, command := isthmus(t, t.TempDir(), "--version"), isthmus(t, t.TempDir(), "version")
	if flag != command || flag.status != 0 || !strings.HasPrefix(flag.stdout, "isthmus ") || !strings.Contains(flag.stdout, "protocol") {
		t.Errorf("--version: %+v; version: %+v", flag, command)
	}
}

// TestCertificatesAndKeys performs the manual steps of an admin and a user.
func TestCertificatesAndKeys(t *testing.T) {
	dir := t.TempDir()
	if got := isthmus(t, dir, "ca", "init", "--dir", "ca", "mygrid"); got.status != 0 || got.stdout != "made ca/ca.pem (give it to every daemon) and ca/ca.key (keep it)\n" {
		t.Fatalf("%+v", got)
	}
	if got := isthmus(t, dir, "ca", "init", "--dir", "ca", "mygrid"); got.status != 1 || !strings.Contains(got.stderr, "ca/ca.pem exists already") {
		t.Errorf("a second CA: %+v", got)
	}
	got := isthmus(t, dir, "ca", "issue", "--out", "certs", "helper", "n1@sitea")
	if want := "tls:\n  cert: certs/helper-sitea-n1.pem\n  key: certs/helper-sitea-n1.key\n  ca: certs/ca.pem\n"; got.status != 0 || got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
	for name, mode := range map[string]os.FileMode{"ca/ca.key": 0o600, "certs/helper-sitea-n1.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, mode)
		}
	}
	if got := isthmus(t, dir, "job", "new", "myjob"); got.status != 0 || !strings.HasPrefix(got.stdout, "myjob:") || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}

// TestCommands: what test/rules knows of the commands is what there is.
func TestCommands(t *testing.T) { cmdtest.Commands(t) }
