package join

import (
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

const testKey = "demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

func TestEnvironment(t *testing.T) {
	for _, tc := range []struct {
		name       string
		env        string
		rank, size int
		fault      string
	}{
		{"none", "", 0, 1, ""},
		{"isthmus run", "ISTHMUS_RANK=1 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 1, 2, ""},
		{"before all others", "ISTHMUS_RANK=1 ISTHMUS_SIZE=2 PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=5 SLURM_NTASKS=6 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 1, 2, ""},
		{"PMI before Slurm", "PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=5 SLURM_NTASKS=6 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 3, 4, ""},
		{"PMIx", "PMIX_RANK=2 OMPI_COMM_WORLD_SIZE=3 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 2, 3, ""},
		{"Slurm", "SLURM_PROCID=5 SLURM_NTASKS=6 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 5, 6, ""},
		{"one of one needs no key", "SLURM_PROCID=0 SLURM_NTASKS=1", 0, 1, ""},
		{"rank too great", "ISTHMUS_RANK=2 ISTHMUS_SIZE=2", 0, 0, `ISTHMUS_RANK="2" of ISTHMUS_SIZE="2": want a rank from 0`},
		{"no number", "PMI_RANK=x PMI_SIZE=2", 0, 0, `PMI_RANK="x"`},
		{"rank alone", "ISTHMUS_RANK=0", 0, 0, "ISTHMUS_RANK is set but ISTHMUS_SIZE is not"},
		{"size alone", "ISTHMUS_SIZE=2", 0, 0, "ISTHMUS_SIZE is set but ISTHMUS_RANK is not"},
		{"both ways", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h ISTHMUS_DIR=/d", 0, 0, "both ISTHMUS_HELPER (/h) and ISTHMUS_DIR (/d)"},
		{"no way", "SLURM_PROCID=0 SLURM_NTASKS=2 ISTHMUS_JOB_KEY=K", 0, 0, "Slurm numbers this process 0 of 2, but to reach the others it needs"},
		{"carriers", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d ISTHMUS_CARRIERS=16", 0, 2, ""},
		{"no switch", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d ISTHMUS_SHARED=no", 0, 0, "ISTHMUS_SHARED=\"no\": want on or off"},
		{"no carriers", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d ISTHMUS_CARRIERS=0", 0, 0, "ISTHMUS_CARRIERS=\"0\": want a number of carriers from 1 to 16"},
		{"too many carriers", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d ISTHMUS_CARRIERS=17", 0, 0, "ISTHMUS_CARRIERS"},
		{"a replica", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=1 ISTHMUS_COPIES=2 ISTHMUS_REPLICA_TABLE=primary ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 1, ""},
		{"an independent copy", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=1", 0, 1, ""},
		{"one replica of one rank needs a key", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=1 ISTHMUS_COPIES=2", 0, 0, "to reach the others it needs"},
		{"no such replica", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=2 ISTHMUS_COPIES=2", 0, 0, `ISTHMUS_COPY="2" of ISTHMUS_COPIES="2": want a replica from 0`},
		{"which replica", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPIES=2", 0, 0, `ISTHMUS_COPY=""`},
		{"no such table", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=1 ISTHMUS_COPIES=2 ISTHMUS_REPLICA_TABLE=x", 0, 0, `ISTHMUS_REPLICA_TABLE="x": want parallel or primary`},
		{"no switch for sends", "ISTHMUS_RANK=0 ISTHMUS_SIZE=1 ISTHMUS_COPY=1 ISTHMUS_COPIES=2 ISTHMUS_SEND_DETERMINISTIC=yes", 0, 0, `want 0 or 1`},
		{"bad key", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=demo:x ISTHMUS_DIR=/d", 0, 0, "ISTHMUS_JOB_KEY: job key of demo: the secret is not 32 bytes"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(strings.ReplaceAll(tc.env, "KEY=K", "KEY="+testKey)) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		p, err := FromEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		switch {
		case tc.fault == "" && (err != nil || p.Rank != tc.rank || p.Size != tc.size):
			t.Errorf("%s: rank %d of %d, %v", tc.name, p.Rank, p.Size, err)
		case tc.fault != "" && (!errors.Is(err, mpi.ErrEnv) || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.fault)
		}
	}
}

// What the environment says of replicas numbers the process.
func TestReplicas(t *testing.T) {
	env := map[string]string{EnvRank: "2", EnvSize: "3", EnvCopy: "1", EnvCopies: "2", EnvTable: "primary", EnvSends: "1", EnvDir: "/d", "ISTHMUS_JOB_KEY": testKey}
	p, err := FromEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || p.Process() != 5 || p.Processes() != 6 || p.Table != replica.Primary || !p.SendDeterministic {
		t.Errorf("%+v, %v", p, err)
	}
}
