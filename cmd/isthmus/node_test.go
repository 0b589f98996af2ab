package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

func TestAllocation(t *testing.T) {
	for _, tc := range []struct {
		env   string
		want  allocation
		fault string
	}{
		{"SLURM_JOB_ID=71 SLURMD_NODENAME=Node07 SLURM_LOCALID=2 SLURM_CPUS_ON_NODE=16", allocation{job: "71", node: "node07", task: 2, cores: 16, dir: "/t/isthmus-1000-71"}, ""},
		{"SLURM_JOB_ID=71", allocation{job: "71", dir: "/t/isthmus-1000-71"}, ""}, // in a batch script
		{"", allocation{}, "this is not a Slurm allocation"},
		{"SLURM_JOB_ID=../x", allocation{}, "this is not a Slurm allocation"},
		{"SLURM_JOB_ID=71 SLURM_LOCALID=x", allocation{}, `SLURM_LOCALID="x" is not a number`},
		{"SLURM_JOB_ID=71 SLURM_CPUS_ON_NODE=-1", allocation{}, `SLURM_CPUS_ON_NODE="-1" is not a number`},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(tc.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		got, err := allocationFrom(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, "/t", 1000)
		switch {
		case tc.fault == "" && (err != nil || got != tc.want):
			t.Errorf("%s: %+v, %v; want %+v", tc.env, got, err, tc.want)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: %v, want %q", tc.env, err, tc.fault)
		}
	}
}

func TestHelperOfAnAllocation(t *testing.T) {
	certs := t.TempDir()
	cert := filepath.Join(certs, "helper-sitea-node07.pem")
	if err := os.WriteFile(cert, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := allocation{job: "71", node: "node07", cores: 16, dir: "/t/d"}
	authority, _, err := ca.New("tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	token := func(id, nodes string) string {
		t.Helper()
		text, err := authority.Token(ca.AllocationToken("sitea", ca.Allocation{ID: id, Nodes: nodes, Account: "alice"}, time.Now().Add(time.Hour)), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o400); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, other, elsewhere := token("71", "node[01-08]"), token("72", "node[01-08]"), token("71", "node[08-09]")
	open := token("71", "node07")
	if err := os.Chmod(open, 0o444); err != nil {
		t.Fatal(err)
	}
	start := func(cert, key, root string) []string {
		return []string{"helper", "--socket", "/t/d/helper.sock", "--public=false", "--node-service-end-jobs", "--tls-cert", cert, "--tls-key", key, "--tls-ca", root}
	}
	given := start(cert, filepath.Join(certs, "helper-sitea-node07.key"), filepath.Join(certs, "ca.pem"))
	enrolled := start("/t/d/tls/cert.pem", "/t/d/tls/key.pem", "/t/d/tls/ca.pem")
	for _, tc := range []struct {
		o     nodeOptions
		want  []string
		fault string
	}{
		{nodeOptions{"sitea", "gw:7440", certs, "", "", ""}, append(slices.Clone(given), "--frontal", "gw:7440", "--config", "/t/d/helper.yaml"), ""},
		{nodeOptions{"sitea", "", certs, "h.yaml", "", ""}, append(slices.Clone(given), "--config", "h.yaml"), ""},
		{nodeOptions{"", "gw:7440", "", "", good, "b:443"}, append(slices.Clone(enrolled), "--frontal", "gw:7440", "--config", "/t/d/helper.yaml"), ""},
		{nodeOptions{"", "gw:7440", certs, "", "", ""}, nil, "give --site"},
		{nodeOptions{"sitea", "", certs, "", "", ""}, nil, "give --frontal"},
		{nodeOptions{"sitea", "gw:7440", "", "", "", ""}, nil, "give --token"},
		{nodeOptions{"sitea", "gw:7440", certs, "", good, ""}, nil, "give either --token or --certs"},
		{nodeOptions{"sitea", "gw:7440", "", "", good, ""}, nil, "give --broker"},
		{nodeOptions{"siteb", "gw:7440", "", "", good, "b:443"}, nil, "the token is for a node of sitea, not of siteb"},
		{nodeOptions{"sitea", "gw:7440", "", "", other, "b:443"}, nil, "the token is for helper sitea/alloc-72.*, but this is allocation 71"},
		{nodeOptions{"sitea", "gw:7440", "", "", elsewhere, "b:443"}, nil, "host node07 is not one of allocation 71 (node[08-09])"},
		{nodeOptions{"sitea", "gw:7440", "", "", open, "b:443"}, nil, "lets others read the token"},
		{nodeOptions{"Site", "gw:7440", certs, "", "", ""}, nil, `site name "Site"`},
		{nodeOptions{"siteb", "gw:7440", certs, "", "", ""}, nil, "isthmus ca issue --out " + certs + " helper siteb/node07"},
	} {
		got, err := a.helper(tc.o)
		switch {
		case tc.fault == "" && (err != nil || !slices.Equal(got.args, tc.want)):
			t.Errorf("%+v: %q, %v", tc, got.args, err)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%+v: %v", tc, err)
		}
	}
	const want = "node_service: {store: \"/t/d/jobs\"}\noffer:\n  jobs: 1\n  allow: [{identity: \"alice@sitea/*\"}]\n  processes: 16\n  cpu: 16\n"
	if got := a.offerText("sitea", "alice"); got != want {
		t.Errorf("its settings:\n%s", got)
	}
}

func TestPrivateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	for range 2 { // created, and found
		if err := privateFolder(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := privateFolder(dir); err == nil || !strings.Contains(err.Error(), "not a private folder of this user") {
		t.Errorf("one that others may enter: %v", err)
	}
	link := dir + "2"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := privateFolder(link); err == nil {
		t.Error("a link was taken for a folder")
	}
}
