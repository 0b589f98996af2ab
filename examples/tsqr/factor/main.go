package factor

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/examples/program"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// The methods, in the order in which they run.
const (
	methodTSQR    = "tsqr"
	methodColumns = "columns"
	bothMethods   = "both"
)

var methods = []string{methodTSQR, methodColumns}

// Main runs the program as a process of its job with the given arguments and
// returns the exit code: 1 if the run failed or a result is wrong, 2 for a
// mistake in the arguments. An interrupt ends the run.
func Main(args []string) int { return example.Main(args) }

var example = program.Program[options]{Name: "tsqr", Parse: parse, Run: report}

type options struct {
	rows    []int
	cols    int
	method  string
	domains int
	repeat  int
	mflops  float64
	proved  int // most rows of a matrix whose factors are proved; 0: any
	json    bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var rows string
	flags := flag.NewFlagSet("tsqr", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&rows, "rows", "65536", "`numbers` of rows of the matrices, separated by commas")
	flags.IntVar(&o.cols, "cols", 64, "their number of columns")
	flags.StringVar(&o.method, "method", bothMethods, "`way`: tsqr, columns or both")
	flags.IntVar(&o.domains, "domains", perRank, "domains of tsqr in each group of the job, or site if it has none; 0 is one for each rank")
	flags.IntVar(&o.repeat, "repeat", 3, "runs of each, in turn")
	flags.Float64Var(&o.mflops, "mflops", 0, "compute as a processor of so many million operations a second would; 0 is as fast as this one can")
	flags.IntVar(&o.proved, "prove", 0, "prove the factors of matrices of up to so many `rows`, which takes longer than to find them; 0 is of all")
	flags.BoolVar(&o.json, "json", false, "print one JSON object for each result")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for word := range strings.SplitSeq(rows, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return o, fmt.Errorf("--rows %s: want numbers of rows, separated by commas", rows)
		}
		o.rows = append(o.rows, n)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see tsqr --help", flags.Arg(0))
	case o.method != methodTSQR && o.method != methodColumns && o.method != bothMethods:
		return o, fmt.Errorf("--method %s: want tsqr, columns or both", o.method)
	case o.cols < 1 || o.domains < 0 || o.repeat < 1 || !(o.mflops >= 0) || o.proved < 0:
		return o, fmt.Errorf("--cols %d --domains %d --repeat %d --mflops %g --prove %d: want at least 1, 0, 1, 0 and 0", o.cols, o.domains, o.repeat, o.mflops, o.proved)
	}
	return o, nil
}

// report runs and has rank 0 print. A wrong result is an error on every rank.
func report(ctx context.Context, comm *mpilib.Comm, o options, stdout io.Writer) error {
	results, err := o.run(ctx, comm)
	if err != nil {
		return err
	}
	if comm.Rank() == 0 {
		if err := o.write(stdout, results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if r.Proved && !r.Verified {
			return fmt.Errorf("%s of %d x %d is wrong: %+v", r.Method, r.Rows, r.Cols, r.Proof)
		}
	}
	return nil
}

// run factors all matrices and returns the same on every rank.
func (o options) run(ctx context.Context, comm *mpilib.Comm) (results []Result, err error) {
	for _, rows := range o.rows {
		if err := o.problem(rows).check(comm.Size()); err != nil {
			return nil, err
		}
	}
	solvers := make(map[string]*solver)
	for _, method := range methods { // making one is collective, and so in one order
		if o.method != method && o.method != bothMethods {
			continue
		}
		domains := o.domains
		if method == methodColumns {
			domains = oneForAll
		}
		s, err := newSolver(ctx, comm, domains, o.mflops)
		if err != nil {
			return nil, err
		}
		defer s.domain.Free()
		solvers[method] = s
	}
	if err := o.warmUp(ctx, comm.Size(), solvers); err != nil {
		return nil, err
	}
	for _, rows := range o.rows {
		some, err := solve(ctx, o.problem(rows), o.repeat, solvers)
		if err != nil {
			return nil, err
		}
		results = append(results, some...)
	}
	return results, nil
}

// warmUp factors something small, so that all links are there.
func (o options) warmUp(ctx context.Context, ranks int, solvers map[string]*solver) error {
	const cols = 2
	_, err := solve(ctx, problem{rows: ranks * cols, cols: cols, seed: 1, prove: true}, 1, solvers)
	return err
}

func (o options) problem(rows int) problem {
	return problem{rows: rows, cols: o.cols, seed: 1, prove: o.proved == 0 || rows <= o.proved}
}

func (o options) write(w io.Writer, results []Result) error {
	if !o.json {
		return writeTable(w, results)
	}
	return program.WriteJSON(w, results)
}
