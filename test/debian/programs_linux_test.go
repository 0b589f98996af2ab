//go:build system

package debian

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// NetPIPE sends messages of many sizes to and fro, and checks what arrives.
func TestNetPIPE(t *testing.T) {
	for command, mpi := range map[string]implementation{"NPmpich2": mpich, "NPopenmpi": openMPI} {
		for name, flags := range map[string]string{
			"timed": "", "checked": "-i", "preposted": "-i -a", "synchronous": "-i -S", "stream": "-i -s", "both ways": "-i -a -2", "unaligned": "-i -O 1,3",
		} {
			t.Run(command+" "+name, func(t *testing.T) {
				sameAsItsOwn(t, netpipe(t, mpi, command, flags), 2)
			})
		}
	}
}

// netpipe is a program whose verdict is the sizes and what it says of them, without times.
func netpipe(t *testing.T, mpi implementation, command, flags string) program {
	t.Helper()
	need(t, "netpipe-mpich2, netpipe-openmpi", command, mpi.launcher[0])
	return program{
		mpi: mpi, direct: true,
		command: slices.Concat([]string{command}, strings.Fields(flags), strings.Fields("-n 3 -u 1000000 -o out")),
		verdict: func(out string) string {
			return matched(out, `(?m)^ *\d+: +\d+ bytes +\d+ times -->(  Integrity check passed)?`)
		},
	}
}

// The PBLAS testers compute with distributed vectors and matrices, and compare with what BLAS computes.
// The timers compute and print times. Each reads its problems and grids of processes from a file.
func TestPBLAS(t *testing.T) {
	for folder, mpi := range map[string]implementation{"mpich-tests": mpich, "openmpi-tests": openMPI} {
		for _, kind := range []string{"s", "d", "c", "z"} {
			for level := range 3 {
				for _, what := range []string{"tst", "tim"} {
					name := fmt.Sprintf("%spb%d%s", kind, level+1, what)
					for _, ranks := range []int{1, 2, 4} {
						t.Run(fmt.Sprint(folder, " ", name, " ", ranks), func(t *testing.T) {
							sameAsItsOwn(t, pblas(t, mpi, folder, name, ranks), ranks)
						})
					}
				}
			}
		}
	}
}

var (
	// seconds are a time or a rate in a timer's output.
	seconds = regexp.MustCompile(` +-?\d+\.\d+`)
	// grids are the lines with the number of grids, and with the rows and columns of each.
	grids = regexp.MustCompile(`\d+(\s+number of process grids.*\n)[ \d]+(\s.*\n)[ \d]+(\s.*\n)`)
	// forRanks are grids for few ranks; for four the files have some.
	forRanks = map[int]string{1: "1${1}1${2}1${3}", 2: "2${1}1 2${2}2 1${3}"}
)

// pblas is a tester, whose verdict is all that it prints, or a timer.
func pblas(t *testing.T, mpi implementation, folder, name string, ranks int) program {
	t.Helper()
	dir := "/usr/lib/*/scalapack/" + folder + "/PBLAS"
	data := strings.ToUpper(fmt.Sprintf("P%cBLAS%c%s", name[0], name[3], name[4:])) + ".dat"
	if strings.HasSuffix(name, "tim") {
		dir += "/TIMING"
	}
	found, _ := filepath.Glob(filepath.Join(dir, name))
	if len(found) == 0 {
		t.Skipf("there is no %s (Debian: scalapack-mpi-test)", name)
	}
	need(t, "mpich, openmpi-bin", mpi.launcher[0])
	text, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), data))
	if err != nil {
		t.Fatal(err)
	}
	problems := string(text)
	if fit := forRanks[ranks]; fit != "" {
		if problems = grids.ReplaceAllString(problems, fit); problems == string(text) {
			t.Fatalf("%s: no grids of processes were found in it", data)
		}
	}
	return program{
		mpi: mpi, command: found, files: map[string]string{data: problems},
		verdict: func(out string) string {
			if !strings.Contains(out, "End of Tests.") || strings.Contains(name, "tst") && !strings.Contains(out, "PASSED") {
				return ""
			}
			var lines strings.Builder
			for line := range strings.Lines(out) {
				switch {
				case strings.HasPrefix(line, "Note: ") || strings.HasPrefix(line, "isthmus: "): // to standard error
					continue
				case strings.HasSuffix(name, "tim") && strings.HasPrefix(line, "  |"):
					line = seconds.ReplaceAllString(line, " *")
				}
				lines.WriteString(line)
			}
			return lines.String()
		},
	}
}

// hpcc is seven benchmarks, HPL among them, each of which checks what it has computed.
func TestHPCC(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			sameAsItsOwn(t, hpcc(t, ranks), ranks)
		})
	}
}

// hpcc is the program, with small problems.
func hpcc(t *testing.T, ranks int) program {
	t.Helper()
	need(t, "hpcc", "hpcc", openMPI.launcher[0])
	rows := min(ranks, 2)
	return program{
		mpi: openMPI, command: []string{"hpcc"}, direct: true, result: "hpccoutf.txt",
		files: map[string]string{"hpccinf.txt": fmt.Sprintf(labtest.ReadFile(t, "test/debian/testdata/hpccinf.txt"), rows, ranks/rows)},
		verdict: func(out string) string {
			verdict := matched(out, `(?m)^.*(PASSED|FAILED|passed|failed|[eE]rrors?\b|Success|Validates|End of).*$`)
			return regexp.MustCompile(` +-?\d+\.\d+(e[-+]\d+)?`).ReplaceAllString(verdict, " *")
		},
	}
}

// A script calls MPI from Python.
func TestMPI4Py(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			sameAsItsOwn(t, mpi4py(t), ranks)
		})
	}
}

// mpi4py is the script, whose verdict is what it prints.
func mpi4py(t *testing.T) program {
	t.Helper()
	const python = "/usr/bin/python3" // which finds Debian's packages
	need(t, "python3-mpi4py", python, openMPI.launcher[0])
	if found, _ := filepath.Glob("/usr/lib/python3/dist-packages/mpi4py/MPI.*.so"); len(found) == 0 {
		t.Skip("there is no mpi4py (Debian: python3-mpi4py)")
	}
	return program{
		mpi: openMPI, command: []string{python, "calls.py"}, files: map[string]string{"calls.py": labtest.ReadFile(t, "test/debian/testdata/calls.py")},
		verdict: func(out string) string { return matched(out, `(?m)^[A-Za-z ,_]+ \[.*\]$`) },
	}
}

// matched returns all that a regular expression matches in a text, a line each.
func matched(text, expression string) string {
	return strings.Join(regexp.MustCompile(expression).FindAllString(text, -1), "\n")
}
