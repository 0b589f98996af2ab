package farm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/clusters"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// spread places ranks on sites, one after the other or in turn.
func spread(ranks, sites int, inTurn bool) []overlay.NodeID {
	places := make([]overlay.NodeID, ranks)
	for r := range places {
		site := r * sites / ranks
		if inTurn {
			site = r % sites
		}
		places[r] = overlay.NodeID{Site: overlay.SiteID(fmt.Sprint("s", site)), Name: "n"}
	}
	return places
}

// world runs f on ranks that believe to be on so many sites.
func world(t *testing.T, ranks, sites int, inTurn bool, f func(context.Context, *mpilib.Comm) error) {
	t.Helper()
	places := spread(ranks, sites, inTurn)
	mpilib.TestWorld(t, ranks, f, mpilib.WithPlaces(func(r int) (string, string) { return string(places[r].Site), places[r].Name }))
}

// Of 16 processes on three sites, 15 trace rays for one master and 12 for three
// bosses.
func TestRoles(t *testing.T) {
	for _, tt := range []struct {
		ranks, sites    int
		pattern         pattern
		bosses, workers int
	}{
		{16, 3, vanilla, 0, 15},
		{16, 3, hierarchical, 3, 12},
		{16, 3, auto, 0, 15},
		{29, 3, auto, 0, 28},
		{30, 3, auto, 3, 26},
		{2, 1, hierarchical, 0, 1},
		{2, 2, hierarchical, 0, 1},
		{4, 2, hierarchical, 1, 2}, // the master's site has one more, who works for the master
		{5, 1, hierarchical, 1, 3},
	} {
		for _, inTurn := range []bool{false, true} {
			c, err := newCast(clusters.Of(spread(tt.ranks, tt.sites, inTurn), nil), tt.pattern)
			if err != nil || c.bosses != tt.bosses || c.workers != tt.workers {
				t.Errorf("%+v, in turn %v: %+v, %v", tt, inTurn, c, err)
			}
			if c.kinds[0] != master || c.group[0] != -1 {
				t.Errorf("%+v: rank 0 is %v of %d", tt, c.kinds[0], c.group[0])
			}
			dealtTo := int64(0)
			for r, k := range c.kinds {
				if k == boss {
					dealtTo += c.workersOf(r)
				} else if k == worker && c.group[r] == -1 {
					dealtTo++
				}
			}
			if dealtTo != int64(tt.workers) {
				t.Errorf("%+v: %d workers are dealt to", tt, dealtTo)
			}
		}
	}
	if _, err := newCast(make([]int, 1), vanilla); err == nil || err.Error() != "1 rank: want a master and at least one worker; start two ranks or more" {
		t.Errorf("one rank: %v", err)
	}
}

// Bosses are those of the job's groups, where it has some: a master in a group of its own has
// a boss in each other one.
func TestBossesOfGroups(t *testing.T) {
	o := options{plan: plan{rays: 100, stations: 3, chunk: 2, credit: 1}, patterns: []pattern{hierarchical}, repeat: 1, check: true}
	mpilib.TestWorld(t, 9, func(ctx context.Context, comm *mpilib.Comm) error {
		results, first, err := o.run(ctx, comm)
		if err != nil {
			return err
		}
		if r := results[0]; r.Bosses != 2 || r.Workers != 6 || r.Sites != 1 || first && !r.Verified {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}, mpilib.WithGroups("master:1,west:3,east:5"))
}

// Where ranks have replicas, all of them do the same, in either pattern: they get the same results, and print the same times.
func TestReplicas(t *testing.T) {
	o := options{plan: plan{rays: 60, stations: 3, chunk: 2, credit: 2}, patterns: []pattern{vanilla, hierarchical}, repeat: 2, check: true}
	places := spread(7, 2, false)
	var mu sync.Mutex
	var printed []string
	mpilib.TestWorld(t, 7, func(ctx context.Context, comm *mpilib.Comm) error {
		var out bytes.Buffer
		err := report(ctx, comm, o, &out)
		if comm.Rank() == 0 {
			mu.Lock()
			defer mu.Unlock()
			printed = append(printed, out.String())
		}
		return err
	}, mpilib.WithReplicas(2), mpilib.WithPlaces(func(r int) (string, string) { return string(places[r].Site), places[r].Name }))
	if len(printed) != 2 || printed[0] != printed[1] || strings.Count(printed[0], "yes\n") != 2 {
		t.Errorf("the replicas of rank 0 print\n%s", strings.Join(printed, ""))
	}
}

// A work queue hands out every ray once, in the order of the requests, and says "no
// more" only when nothing can come.
func TestWorkQueue(t *testing.T) {
	d := newWorkQueue(func(client int) int64 { return int64(client) })
	var log []string
	say := func() {
		for {
			client, c, ok := d.next()
			if !ok {
				return
			}
			log = append(log, fmt.Sprintf("%d:%d+%d", client, c.First, c.Count))
		}
	}
	d.ask(3)
	say()
	d.put(chunk{0, 4})
	say()
	d.ask(2)
	d.ask(3)
	say()
	d.put(chunk{10, 2})
	say()
	if !d.answered(3, chunk{0, 3}) || d.answered(3, chunk{0, 3}) || d.answered(2, chunk{10, 2}) || d.answered(9, chunk{3, 1}) {
		t.Error("the queue does not know which client has which chunk")
	}
	d.close()
	d.ask(3)
	say()
	d.ask(2)
	say()
	if want := []string{"3:0+3", "2:3+1", "3:10+2", "3:0+0", "2:0+0"}; !slices.Equal(log, want) {
		t.Errorf("handed out %q, want %q", log, want)
	}
}

func TestBatches(t *testing.T) {
	b := batches{{chunk: chunk{10, 3}}, {chunk: chunk{20, 1}}}
	if done, err := b.enter([]arrival{{12, 1}}); done != nil || err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := b.enter([]arrival{{20, 2}}); err != nil || done == nil || done.First != 20 || len(b) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	done, err := b.enter([]arrival{{10, 3}, {11, 4}})
	if want := []arrival{{10, 3}, {11, 4}, {12, 1}}; err != nil || done == nil || !slices.Equal(done.arrivals, want) {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := b.enter([]arrival{{10, 3}}); err == nil || err.Error() != "ray 10 is of no chunk that is not done" {
		t.Errorf("error %v", err)
	}
}

func TestLedger(t *testing.T) {
	l := newLedger(3)
	if err := l.enter([]arrival{{0, 5}, {2, noRay}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.sum(); err == nil || err.Error() != "no rank has traced ray 1" {
		t.Errorf("error %v", err)
	}
	for _, ray := range []int64{0, 3, -1} {
		if err := l.enter([]arrival{{ray, 5}}); err == nil {
			t.Errorf("ray %d was entered", ray)
		}
	}
	if err := l.enter([]arrival{{1, 7}}); err != nil {
		t.Fatal(err)
	}
	s, err := l.sum()
	if err != nil || s.Arrived != 2 || s.Mean != 6 {
		t.Errorf("%+v, %v", s, err)
	}
	l[1], l[0] = l[0], l[1]
	if other, err := l.sum(); err != nil || other.Checksum == s.Checksum {
		t.Errorf("two rays' times the other way round: %+v, %v", other, err)
	}
}

// Both patterns find what one rank finds alone, trace each ray once, and send what
// was foreseen between sites: two messages for each chunk dealt there, and two for each
// chunk that a client there may have at once. The numbers are counted by hand. Where the
// fastest clients are dealt the most, they are bounds.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		ranks, sites int
		inTurn       bool
		chunk, big   int64
		credit       int64

		bosses           int      // in the hierarchical pattern
		chunks           int64    // dealt by the master, and so traced, in the vanilla pattern
		dealt, traced    [2]int64 // in the hierarchical one, from and to
		vanillaWAN, wans [2]int64 // messages between sites, from and to
	}{
		{2, 1, false, 3, 0, 1, 0, 100, [2]int64{100, 100}, [2]int64{100, 100}, [2]int64{0, 0}, [2]int64{0, 0}},
		// Both workers are elsewhere: 30 chunks and 2 credits of 2.
		{3, 3, false, 10, 0, 2, 0, 30, [2]int64{30, 30}, [2]int64{30, 30}, [2]int64{68, 68}, [2]int64{68, 68}},
		// Three of six workers are elsewhere; one of two bosses, with 2 credits, of whom each gets 16 rays at once.
		{7, 2, true, 4, 0, 1, 2, 75, [2]int64{19, 19}, [2]int64{75, 75}, [2]int64{6, 156}, [2]int64{4, 42}},
		// The master's boss has one worker and gets 10 rays, the two elsewhere have two and get 20.
		{9, 3, false, 5, 0, 1, 3, 60, [2]int64{15, 30}, [2]int64{60, 60}, [2]int64{12, 132}, [2]int64{8, 68}},
		// 15 chunks of 20 rays, each of which is three of 7 or less.
		{9, 3, true, 7, 20, 3, 3, 43, [2]int64{15, 15}, [2]int64{45, 45}, [2]int64{36, 122}, [2]int64{8, 38}},
		// One boss gets everything.
		{10, 3, false, 1, 300, 1, 3, 300, [2]int64{1, 1}, [2]int64{300, 300}, [2]int64{12, 612}, [2]int64{8, 10}},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			o := options{
				plan:     plan{rays: 300, stations: 7, chunk: tt.chunk, big: tt.big, credit: tt.credit, speed: 1e5, handling: 0.1},
				patterns: []pattern{vanilla, hierarchical}, repeat: 2, check: true,
			}
			within := func(n int64, bounds [2]int64) bool { return bounds[0] <= n && n <= bounds[1] }
			world(t, tt.ranks, tt.sites, tt.inTurn, func(ctx context.Context, comm *mpilib.Comm) error {
				results, _, err := o.run(ctx, comm)
				if err != nil {
					return err
				}
				for _, r := range results {
					if r.Traffic.WANMessages != r.Traffic.WANExpected {
						return fmt.Errorf("%s: %d messages between sites, want %d", r.Pattern, r.Traffic.WANMessages, r.Traffic.WANExpected)
					}
					if (comm.Rank() == 0) != r.Verified || r.Checked != r.Verified || r.Rays != 300 || len(r.Runs) != 2 {
						return fmt.Errorf("%+v", r)
					}
					if r.Arrived != 248 || math.Abs(r.Mean-770.202555) > 1e-6 {
						return fmt.Errorf("%s: %d rays arrived, after %.6f s on average; want 248 and 770.202555", r.Pattern, r.Arrived, r.Mean)
					}
				}
				v, h := results[0], results[1]
				if v.Times != h.Times || v.Mesh != h.Mesh {
					return fmt.Errorf("%+v and %+v", v, h)
				}
				if v.Bosses != 0 || v.Chunks != tt.chunks || v.BigChunks != tt.chunks || !within(v.Traffic.WANMessages, tt.vanillaWAN) {
					return fmt.Errorf("vanilla: %d bosses, %d chunks dealt and %d traced, %d messages between sites; want %+v",
						v.Bosses, v.BigChunks, v.Chunks, v.Traffic.WANMessages, tt)
				}
				if h.Bosses != tt.bosses || !within(h.BigChunks, tt.dealt) || !within(h.Chunks, tt.traced) || !within(h.Traffic.WANMessages, tt.wans) {
					return fmt.Errorf("hierarchical: %d bosses, %d chunks dealt and %d traced, %d messages between sites; want %+v",
						h.Bosses, h.BigChunks, h.Chunks, h.Traffic.WANMessages, tt)
				}
				return nil
			})
		})
	}
}

// One time or one length that is wrong makes another checksum.
func TestWrongResultsAreSeen(t *testing.T) {
	p := plan{rays: 50, stations: 5}
	right, err := serial(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	o.summary.Checksum, o.mesh = right.times, right.mesh
	for _, tt := range []struct {
		times, mesh uint64
		want        bool
	}{{right.times, right.mesh, true}, {right.times + 1, right.mesh, false}, {right.times, right.mesh + 1, false}} {
		r := new(Result)
		if err := r.compare(outcome{summary: summary{Checksum: tt.times}, mesh: tt.mesh}); err != nil {
			t.Fatal(err)
		}
		if r.finish([]phases{{}}, &right); r.Verified != tt.want || !r.Checked {
			t.Errorf("%+v: verified %v", tt, r.Verified)
		}
		if err := r.compare(o); (err == nil) != tt.want {
			t.Errorf("%+v, then what is right: %v", tt, err)
		}
	}
	if checksumOf(0, []int64{1, 2, 3}) != checksumOf(0, []int64{1})+checksumOf(1, []int64{2, 3}) || checksumOf(0, []int64{1, 2}) == checksumOf(0, []int64{2, 1}) {
		t.Error("the checksum of a mesh is not the sum of its parts', or any order's")
	}
}

func TestReport(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var mu sync.Mutex
		var out bytes.Buffer
		world(t, 5, 2, false, func(ctx context.Context, comm *mpilib.Comm) error {
			var own bytes.Buffer
			o := options{plan: plan{rays: 40, stations: 4, chunk: 3, credit: 1}, patterns: []pattern{vanilla, hierarchical}, repeat: 1, check: asJSON, json: asJSON}
			err := report(ctx, comm, o, &own)
			mu.Lock()
			defer mu.Unlock()
			out.Write(own.Bytes())
			return err
		})
		if !asJSON {
			if strings.Count(out.String(), "not checked\n") != 2 || strings.Count(out.String(), "PATTERN") != 1 {
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
			got = append(got, fmt.Sprint(r.Pattern, r.Sites, r.Bosses, r.Workers, r.Verified))
		}
		if want := []string{"vanilla2 0 4 true", "hierarchical2 2 2 true"}; !slices.Equal(got, want) {
			t.Errorf("results %q, want %q", got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ args, err string }{
		{"", ""},
		{"--pattern vanilla,hierarchical --rays 9 --stations 3 --chunk 2 --big 4 --credit 3 --speed 5 --handling .5 --repeat 2 --check=false --json", ""},
		{"--pattern flat", "--pattern flat: want vanilla, hierarchical or auto"},
		{"--rays 0", "--rays 0 --stations 40: want 1 to 1073741824 of each"},
		{"--chunk 0", "--chunk 0 --big 0 --repeat 1: want at least 1, 0 and 1, and chunks of no more than all 2000 rays"},
		{"--rays 5", "--chunk 10 --big 0 --repeat 1: want at least 1, 0 and 1, and chunks of no more than all 5 rays"},
		{"--credit 0", "--credit 0: want 1 to 1000"},
		{"--speed NaN", "--speed NaN --handling 0: want 0 or more"},
		{"here", `unexpected argument "here"; see ray2mesh --help`},
	} {
		got, err := parse(strings.Fields(tt.args), io.Discard)
		if text := fmt.Sprint(err); (tt.err != "" || err != nil) && text != tt.err {
			t.Errorf("%q: error %v, want %q", tt.args, err, tt.err)
		}
		want := plan{rays: 9, stations: 3, chunk: 2, big: 4, credit: 3, speed: 5, handling: 0.5}
		if strings.Contains(tt.args, "json") && (got.plan != want || len(got.patterns) != 2 || got.check || !got.json || got.repeat != 2) {
			t.Errorf("%q: %+v", tt.args, got)
		}
	}
}
