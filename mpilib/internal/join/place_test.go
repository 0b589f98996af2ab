package join

import (
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
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
