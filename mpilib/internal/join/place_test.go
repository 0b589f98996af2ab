package join

import (
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

const testKey = "demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// inEach has a process numbered by each launcher.
const inEach = "ISTHMUS_RANK=1 ISTHMUS_SIZE=2 PMI_RANK=2 PMI_SIZE=3 PMIX_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=4 SLURM_NTASKS=5 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d"

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
		{"a share of PMIx's", "PMIX_RANK=2 OMPI_COMM_WORLD_SIZE=3 ISTHMUS_FIRST_RANK=5 ISTHMUS_SIZE=8 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 7, 8, ""},
		{"the first share, of Slurm's", "SLURM_PROCID=2 SLURM_NTASKS=3 ISTHMUS_FIRST_RANK=0 ISTHMUS_SIZE=8 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 2, 8, ""},
		{"isthmus run within a share", "ISTHMUS_RANK=0 ISTHMUS_SIZE=8 PMI_RANK=2 PMI_SIZE=3 ISTHMUS_FIRST_RANK=5 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h", 0, 8, ""},
		{"a share beyond the job", "PMI_RANK=2 PMI_SIZE=3 ISTHMUS_FIRST_RANK=6 ISTHMUS_SIZE=8", 0, 0, `PMI_RANK="2 after 6" of ISTHMUS_SIZE="8"`},
		{"a share without a number", "PMI_RANK=2 PMI_SIZE=3 ISTHMUS_FIRST_RANK=x ISTHMUS_SIZE=8", 0, 0, `PMI_RANK="2 after x"`},
		{"a share of an unknown size", "PMI_RANK=2 PMI_SIZE=3 ISTHMUS_FIRST_RANK=5", 0, 0, "ISTHMUS_FIRST_RANK is set but ISTHMUS_SIZE, the number of all ranks, is not"},
		{"all launchers", inEach, 1, 2, ""},
		{"all but the first", strings.ReplaceAll(inEach, "ISTHMUS_RANK=1 ISTHMUS_SIZE=2", ""), 2, 3, ""},
		{"a forced launcher", inEach + " ISTHMUS_LAUNCHER=isthmus", 1, 2, ""},
		{"PMI, forced", inEach + " ISTHMUS_LAUNCHER=pmi", 2, 3, ""},
		{"PMIx, forced", inEach + " ISTHMUS_LAUNCHER=pmix", 3, 4, ""},
		{"Slurm, forced", inEach + " ISTHMUS_LAUNCHER=slurm", 4, 5, ""},
		{"no launcher, forced", inEach + " ISTHMUS_LAUNCHER=none", 0, 1, ""},
		{"an unknown launcher", inEach + " ISTHMUS_LAUNCHER=mpirun", 0, 0, `ISTHMUS_LAUNCHER="mpirun": want one of isthmus, pmi, pmix, slurm, none`},
		{"a forced launcher that is not there", "PMI_RANK=3 PMI_SIZE=4 ISTHMUS_LAUNCHER=pmix", 0, 0, "ISTHMUS_LAUNCHER=pmix, but PMIX_RANK is not set"},
		{"a manager that has to be asked", "PMI_PORT=n1:7 PMI_ID=0", 0, 0, "mpiexec without -pmi-port"},
		{"a manager that is not asked", "PMI_PORT=n1:7 PMI_ID=0 ISTHMUS_LAUNCHER=none", 0, 1, ""},
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
		{"places of replicas", "ISTHMUS_RANK=1 ISTHMUS_SIZE=3 ISTHMUS_COPY=1 ISTHMUS_COPIES=2 ISTHMUS_PLACES=a/n1:2,b/n1:1 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 1, 3, ""},
		{"places of other ranks", "ISTHMUS_RANK=1 ISTHMUS_SIZE=3 ISTHMUS_COPY=1 ISTHMUS_COPIES=2 ISTHMUS_PLACES=a/n1:2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_PLACES: places "a/n1:2": 2 ranks at all nodes, and 3 in the job`},
		{"another job's places", "ISTHMUS_RANK=1 ISTHMUS_SIZE=3 ISTHMUS_PLACES=a/n1:2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 1, 3, ""},
		{"with spares", "ISTHMUS_RANK=1 ISTHMUS_SIZE=2 ISTHMUS_SPARES=2 ISTHMUS_REPLACEMENTS= ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 1, 2, ""},
		{"a replacement", "ISTHMUS_RANK=3 ISTHMUS_SIZE=2 ISTHMUS_SPARES=2 ISTHMUS_REPLACEMENTS=0,0 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 3, 2, ""},
		{"a replacement of nothing", "ISTHMUS_RANK=3 ISTHMUS_SIZE=2 ISTHMUS_SPARES=2 ISTHMUS_REPLACEMENTS=0 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_RANK="3" of ISTHMUS_SIZE="2"`},
		{"a replacement of one rank needs a key", "ISTHMUS_RANK=1 ISTHMUS_SIZE=1 ISTHMUS_SPARES=1 ISTHMUS_REPLACEMENTS=0", 0, 0, "to reach the others it needs"},
		{"no such rank was replaced", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=2 ISTHMUS_REPLACEMENTS=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, "ISTHMUS_REPLACEMENTS: rank 2 of 2 was replaced"},
		{"too many replacements", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_REPLACEMENTS=0,1 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_SPARES="1" and ISTHMUS_REPLACEMENTS="0,1"`},
		{"no number of spares", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=-1 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_SPARES="-1"`},
		{"spares and replicas", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_COPY=0 ISTHMUS_COPIES=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 2, ""},
		{"too many spares for replicas", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=63 ISTHMUS_COPY=0 ISTHMUS_COPIES=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, "at most 62 ISTHMUS_SPARES"},
		{"replicas are not replaced", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_REPLACEMENTS=1 ISTHMUS_COPY=0 ISTHMUS_COPIES=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, "no ISTHMUS_REPLACEMENTS"},
		{"a newcomer has a spare number", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_PROCESS=3 ISTHMUS_COPY=0 ISTHMUS_COPIES=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_PROCESS="3": want a number from 4 on, and below 5`},
		{"not beyond them", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_PROCESS=5 ISTHMUS_COPY=0 ISTHMUS_COPIES=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, `ISTHMUS_PROCESS="5"`},
		{"a newcomer without replicas", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_SPARES=1 ISTHMUS_PROCESS=2 ISTHMUS_JOB_KEY=K ISTHMUS_DIR=/d", 0, 0, "only jobs with replicas"},
		{"bad key", "ISTHMUS_RANK=0 ISTHMUS_SIZE=2 ISTHMUS_JOB_KEY=demo:x ISTHMUS_DIR=/d", 0, 0, "ISTHMUS_JOB_KEY: job key of demo: the secret is not 32 bytes"},
	} {
		p, err := FromEnvironment(environment(tc.env))
		switch {
		case tc.fault == "" && (err != nil || p.Rank != tc.rank || p.Size != tc.size):
			t.Errorf("%s: rank %d of %d, %v", tc.name, p.Rank, p.Size, err)
		case tc.fault != "" && (!errors.Is(err, mpi.ErrEnv) || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.fault)
		}
	}
}

// environment looks names up in a text with NAME=VALUE, in which K is a key.
func environment(text string) func(name string) (string, bool) {
	env := map[string]string{}
	for _, pair := range strings.Fields(strings.ReplaceAll(text, "KEY=K", "KEY="+testKey)) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

// What the environment says of replicas numbers the process.
func TestReplicas(t *testing.T) {
	env := map[string]string{EnvRank: "2", EnvSize: "3", EnvCopy: "1", EnvCopies: "2", EnvTable: "primary", EnvSends: "1", EnvDir: "/d", "ISTHMUS_JOB_KEY": testKey}
	p, err := FromEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || p.Process() != 5 || p.Processes() != 6 || p.Table != replica.Primary || !p.SendDeterministic {
		t.Errorf("%+v, %v", p, err)
	}
	env[EnvSpares], env[EnvProcess] = "2", "7"
	p, err = FromEnvironment(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || p.Process() != 7 || p.Processes() != 8 || p.Rank != 2 || p.Replica != 1 || p.Spares != 0 || p.Newcomers != 2 {
		t.Errorf("a newcomer: %+v, %v", p, err)
	}
}
