package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAllocation(t *testing.T) {
	for _, tc := range []struct {
		env   string
		want  allocation
		fault string
	}{
		{"SLURM_JOB_ID=71 SLURMD_NODENAME=Node07 SLURM_LOCALID=2 SLURM_CPUS_ON_NODE=16", allocation{job: "71", node: "node07", task: 2, cores: 16, dir: "/t/isthmus-1000-71"}, ""},
		{"SLURM_JOB_ID=71", allocation{job: "71", dir: "/t/isthmus-1000-71"}, ""}, // in a batch script
		{"", allocation{}, "this is no allocation of Slurm"},
		{"SLURM_JOB_ID=../x", allocation{}, "this is no allocation of Slurm"},
		{"SLURM_JOB_ID=71 SLURM_LOCALID=x", allocation{}, `SLURM_LOCALID="x" is no number`},
		{"SLURM_JOB_ID=71 SLURM_CPUS_ON_NODE=-1", allocation{}, `SLURM_CPUS_ON_NODE="-1" is no number`},
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
	tls := []string{"helper", "--socket", "/t/d/helper.sock", "--public=false", "--tls-cert", cert,
		"--tls-key", filepath.Join(certs, "helper-sitea-node07.key"), "--tls-ca", filepath.Join(certs, "ca.pem")}
	for _, tc := range []struct {
		site, frontal, certs, config string
		want                         []string
		fault                        string
	}{
		{"sitea", "gw:7440", certs, "", append(slices.Clone(tls), "--frontal", "gw:7440", "--gate-store", "/t/d/gate", "--offer-processes", "16", "--offer-cpu", "16"), ""},
		{"sitea", "", certs, "h.yaml", append(slices.Clone(tls), "--config", "h.yaml"), ""},
		{"", "gw:7440", certs, "", nil, "give --site"},
		{"sitea", "", certs, "", nil, "give --frontal"},
		{"sitea", "gw:7440", "", "", nil, "give --certs"},
		{"Site", "gw:7440", certs, "", nil, `site name "Site"`},
		{"siteb", "gw:7440", certs, "", nil, "isthmus ca issue --out " + certs + " helper siteb/node07"},
	} {
		got, err := a.helperArgs(tc.site, tc.frontal, tc.certs, tc.config)
		switch {
		case tc.fault == "" && (err != nil || !slices.Equal(got, tc.want)):
			t.Errorf("%+v: %q, %v", tc, got, err)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestPrivateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	for range 2 { // made, and found
		if err := privateFolder(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := privateFolder(dir); err == nil || !strings.Contains(err.Error(), "no folder of this user alone") {
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
