package factor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/tsqr/qr"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// world runs f on ranks that believe to be on so many sites.
func world(t *testing.T, ranks, sites int, inTurn bool, f func(context.Context, *mpilib.Comm) error) {
	t.Helper()
	places := spread(ranks, sites, inTurn)
	mpilib.TestWorld(t, ranks, f, mpilib.WithPlaces(func(r int) (string, string) { return string(places[r].Site), places[r].Name }))
}

// Both ways find the factor that one rank alone finds. The tree sends exactly
// one packed triangle for each domain but one, and of these one crosses for each
// site but one; columns need two reductions for each but the last.
func TestBothWays(t *testing.T) {
	for _, tt := range []struct {
		ranks, sites, domains int
		inTurn                bool
	}{{1, 1, 0, false}, {3, 1, 0, false}, {4, 2, 1, true}, {7, 3, 0, true}, {7, 3, 2, false}, {8, 4, 0, false}, {8, 4, 1, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			const cols = 12
			p := problem{rows: tt.ranks*cols + 29, cols: cols, seed: 4, prove: true}
			alone, err := qr.Factor(qr.Random(p.seed, 0, p.rows, p.cols), true, qr.Alone{})
			if err != nil {
				t.Fatal(err)
			}
			want := alone.R()
			qr.Normalize(want)
			world(t, tt.ranks, tt.sites, tt.inTurn, func(ctx context.Context, comm *mpilib.Comm) error {
				for _, domains := range []int{tt.domains, oneForAll} {
					s, err := newSolver(ctx, comm, domains, 0)
					if err != nil {
						return err
					}
					if err := prove1(ctx, s, p, want); err != nil {
						return fmt.Errorf("%d domains: %w", domains, err)
					}
					if err := s.domain.Free(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// Where ranks have replicas, all of them do the same: they get the same results, and print the same times.
func TestReplicas(t *testing.T) {
	o := options{rows: []int{100, 200}, cols: 6, method: bothMethods, repeat: 2}
	places := spread(5, 2, false)
	var mu sync.Mutex
	var printed []string
	mpilib.TestWorld(t, 5, func(ctx context.Context, comm *mpilib.Comm) error {
		var out bytes.Buffer
		err := report(ctx, comm, o, &out)
		if comm.Rank() == 0 {
			mu.Lock()
			defer mu.Unlock()
			printed = append(printed, out.String())
		}
		return err
	}, mpilib.WithReplicas(2), mpilib.WithPlaces(func(r int) (string, string) { return string(places[r].Site), places[r].Name }))
	if len(printed) != 2 || printed[0] != printed[1] || strings.Count(printed[0], "yes\n") != 4 {
		t.Errorf("the replicas of rank 0 print\n%s", strings.Join(printed, ""))
	}
}

func prove1(ctx context.Context, s *solver, p problem, want *qr.Matrix) error {
	method := methodTSQR
	if len(s.layout.leaders) == 1 {
		method = methodColumns
	}
	results, err := solve(ctx, p, 2, map[string]*solver{method: s})
	if err != nil {
		return err
	}
	r := results[0]
	domains, triangle := int64(len(s.layout.leaders)), int64(8*p.cols*(p.cols+1)/2)
	if !r.Verified || len(r.Runs) != 2 || r.Domains != int(domains) || r.Sites != s.layout.sites {
		return fmt.Errorf("%+v", r)
	}
	wantSums := 2*p.cols - 1
	if s.domain.Size() == 1 {
		wantSums = 0
	}
	if r.Reductions != wantSums {
		return fmt.Errorf("%d reductions, want %d", r.Reductions, wantSums)
	}
	between := int64(s.layout.sites - 1)
	tree := len(s.layout.leaders) == s.comm.Size()
	switch {
	case tree && (r.Messages != domains-1 || r.Bytes != r.Messages*triangle || r.WANMessages != between || r.WANBytes != between*triangle):
		return fmt.Errorf("%d messages with %d bytes, %d with %d between sites; want %d and %d of %d bytes",
			r.Messages, r.Bytes, r.WANMessages, r.WANBytes, domains-1, between, triangle)
	case method == methodTSQR && r.WANMessages != between:
		return fmt.Errorf("%d messages between sites, want %d", r.WANMessages, between)
	case method == methodColumns && r.WANMessages < between*int64(r.Reductions):
		return fmt.Errorf("%d reductions with %d messages between %d sites", r.Reductions, r.WANMessages, r.Sites)
	}
	o, err := s.run(ctx, p, false)
	if err != nil || o.r == nil {
		return err
	}
	if d := qr.Norm(qr.Minus(o.r, want)); !(d <= 50*0x1p-52*qr.Norm(want)) {
		return fmt.Errorf("R differs from that of one rank by %g", d)
	}
	return nil
}

// What is wrong by little is seen, and is the same on all ranks.
func TestWrongFactorsAreSeen(t *testing.T) {
	p := problem{rows: 100, cols: 5, seed: 1}
	for name, spoil := range map[string]func(rank int, o *outcome){
		"an element of Q": func(rank int, o *outcome) {
			if rank == 1 {
				o.q.Data[7] += 1e-11
			}
		},
		"an element of R": func(rank int, o *outcome) {
			if rank == 0 {
				o.r.Col(3)[1] += 1e-11
			}
		},
		"below the diagonal": func(rank int, o *outcome) {
			if rank == 0 {
				o.r.Col(1)[3] = 1e-300
			}
		},
		"signs of both": func(rank int, o *outcome) {
			for i := range o.q.Col(2) {
				o.q.Col(2)[i] *= -1
			}
			for j := 2; rank == 0 && j < 5; j++ {
				o.r.Col(j)[2] *= -1
			}
		},
		"": func(int, *outcome) {},
	} {
		mpilib.TestWorld(t, 2, func(ctx context.Context, comm *mpilib.Comm) error {
			s, err := newSolver(ctx, comm, perRank, 0)
			if err != nil {
				return err
			}
			defer s.domain.Free()
			o, err := s.run(ctx, p, true)
			if err != nil {
				return err
			}
			spoil(comm.Rank(), &o)
			proof, err := prove(ctx, comm, p, o)
			if good := proof.good(p.cols); err != nil || good != (name == "") {
				return fmt.Errorf("with %q spoilt: %+v is good: %v, %v", name, proof, good, err)
			}
			return nil
		})
	}
}

func TestReport(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var mu sync.Mutex
		var out bytes.Buffer
		world(t, 4, 2, false, func(ctx context.Context, comm *mpilib.Comm) error {
			var own bytes.Buffer
			o := options{rows: []int{64, 99}, cols: 8, method: bothMethods, repeat: 1, mflops: 1000, json: asJSON}
			err := report(ctx, comm, o, &own)
			mu.Lock()
			defer mu.Unlock()
			out.Write(own.Bytes())
			return err
		})
		if !asJSON {
			if lines := strings.Count(out.String(), " yes\n"); lines != 4 || strings.Count(out.String(), "METHOD") != 1 {
				t.Errorf("printed\n%s", out.String())
			}
			continue
		}
		var got []string
		for d := json.NewDecoder(&out); d.More(); {
			var r Result
			if err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(r.Method, r.Rows, r.Sites, r.Domains, r.WANMessages > 0, r.Verified))
		}
		if want := []string{"tsqr64 2 4 true true", "columns64 2 1 true true", "tsqr99 2 4 true true", "columns99 2 1 true true"}; !slices.Equal(got, want) {
			t.Errorf("results %q", got)
		}
	}
}

// Only matrices up to a number of rows are proved, if there is one.
func TestProveSome(t *testing.T) {
	world(t, 2, 1, false, func(ctx context.Context, comm *mpilib.Comm) error {
		o := options{rows: []int{64, 99}, cols: 8, method: methodTSQR, repeat: 1, proved: 64}
		results, err := o.run(ctx, comm)
		if err != nil {
			return err
		}
		if small, tall := results[0], results[1]; !small.Verified || tall.Proved || tall.Verified || tall.Messages != 1 || tall.Seconds <= 0 {
			return fmt.Errorf("%+v", results)
		}
		return report(ctx, comm, o, io.Discard)
	})
}

func TestTooFewRows(t *testing.T) {
	mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		err := report(ctx, comm, options{rows: []int{96, 95}, cols: 32, method: bothMethods, repeat: 1}, io.Discard)
		want := "a matrix of 95 x 32 on 3 ranks: each needs at least as many rows as there are columns; give 96 rows or more"
		if err == nil || err.Error() != want {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ args, err string }{
		{"", ""},
		{"--rows 1,2 --cols 3 --method columns --domains 2 --repeat 1 --mflops 5 --json", ""},
		{"--rows 1,,2", "--rows 1,,2: want numbers of rows, separated by commas"},
		{"--rows 0", "--rows 0: want numbers of rows, separated by commas"},
		{"--method qr", "--method qr: want tsqr, columns or both"},
		{"--mflops NaN", "--cols 64 --domains 0 --repeat 3 --mflops NaN --prove 0: want at least 1, 0, 1, 0 and 0"},
		{"--repeat 0", "--cols 64 --domains 0 --repeat 0 --mflops 0 --prove 0: want at least 1, 0, 1, 0 and 0"},
		{"here", `unexpected argument "here"; see tsqr --help`},
	} {
		got, err := parse(strings.Fields(tt.args), io.Discard)
		if text := fmt.Sprint(err); (tt.err != "" || err != nil) && text != tt.err {
			t.Errorf("%q: error %v, want %q", tt.args, err, tt.err)
		}
		if strings.Contains(tt.args, "json") && (!slices.Equal(got.rows, []int{1, 2}) || got.cols != 3 || got.method != methodColumns || got.domains != 2 || got.repeat != 1 || got.mflops != 5 || !got.json) {
			t.Errorf("%q: %+v", tt.args, got)
		}
	}
}

// Places may be none: then all is one site.
func TestNoPlaces(t *testing.T) {
	if l := newLayout(make([]overlay.NodeID, 3), make([]int, 3), perRank); l.sites != 1 || len(l.steps) != 2 {
		t.Errorf("%+v", l)
	}
}
