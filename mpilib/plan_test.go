package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	collop "github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// sitesOf distributes ranks over sites: in blocks of some ranks each, or round-robin.
type sitesOf struct {
	name  string
	ranks int
	place func(rank int) (site, node string)
}

var layouts = []sitesOf{
	{"2 sites in blocks", 6, func(r int) (string, string) { return fmt.Sprint("s", r/3), fmt.Sprint("n", r/2) }},
	{"3 sites dealt", 7, func(r int) (string, string) { return fmt.Sprint("s", r%3), fmt.Sprint("n", r%2) }},
	{"1 and 4", 5, func(r int) (string, string) { return fmt.Sprint("s", min(r, 1)), "n" }},
	{"4 sites of one", 4, func(r int) (string, string) { return fmt.Sprint("s", r), "n" }},
	{"1 site, 2 nodes", 4, func(r int) (string, string) { return "s", fmt.Sprint("n", r%2) }},
}

// listed returns the planner of the next call.
func listed(ctx context.Context, c *Comm) (*collectives.Planner, error) {
	call, err := c.core.Next(ctx)
	if err != nil {
		return nil, err
	}
	return call.Planner(), nil
}

// Every algorithm carries out its collective correctly over messages for all places of the ranks.
// If it cannot, another algorithm is used.
func TestEveryAlgorithm(t *testing.T) {
	for _, l := range either(layouts[2:3], layouts) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for _, collective := range collectives.Operations() { // a world each: all of them take minutes on a busy machine
				TestWorld(t, l.ranks, func(ctx context.Context, c *Comm) error {
					for _, a := range collectives.Algorithms(collective) {
						if a.Needs.Has(collectives.SharedMemory) { // see TestEveryAlgorithmOverSharedMemory
							continue
						}
						if err := everyDeedWith(ctx, c, collective, a); err != nil {
							return err
						}
					}
					return nil
				}, WithPlaces(l.place))
			}
		})
	}
}

// everyDeedWith makes the calls of a collective by one algorithm.
func everyDeedWith(ctx context.Context, c *Comm, collective collop.Operation, a collectives.Algorithm) error {
	names, reduces := []string{a.Name}, strings.Contains(collective.String(), "reduce") || strings.Contains(collective.String(), "scan")
	if a.Flits > 0 {
		names = append(names, a.Name+":3")
	}
	for _, name := range names {
		info, err := NewInfo(HintColl, collective.String()+"="+name)
		if err == nil {
			err = c.SetInfo(info)
		}
		if err != nil {
			return err
		}
		for salt, n := range either([]int{20}, []int{5, 100}) {
			for _, d := range deeds(c, n, salt) {
				if !strings.HasPrefix(strings.ToLower(d.name), strings.ReplaceAll(collective.String(), "_", "")) {
					continue
				}
				d.fill()
				if err := d.after(name, d.call(ctx)); err != nil {
					return err
				}
			}
			if !reduces {
				continue
			}
			if err := sums(ctx, c, n+salt); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// sums reduces n elements with a commutative operator in every kind of call.
func sums(ctx context.Context, c *Comm, n int) error {
	p, me, root := c.Size(), c.Rank(), n%c.Size()
	have := func(r, i int) int64 { return int64(1000*r*r + i) }
	of := func(first, end, from, n int) []int64 {
		v := make([]int64, n)
		for i := range v {
			for r := first; r < end; r++ {
				v[i] += have(r, from+i)
			}
		}
		return v
	}
	mine, wide := of(me, me+1, 0, n), of(me, me+1, 0, n*p)
	counts := slices.Repeat([]int{n}, p)
	got, all, upTo, below := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	share, block := make([]int64, n), make([]int64, n)
	err := errors.Join(Reduce(ctx, c, mine, got, Sum, root), Allreduce(ctx, c, mine, all, Sum),
		Scan(ctx, c, mine, upTo, Sum), Exscan(ctx, c, mine, below, Sum),
		ReduceScatter(ctx, c, wide, share, counts, Sum), ReduceScatterBlock(ctx, c, wide, block, Sum))
	if err != nil {
		return err
	}
	if me == root {
		err = equal("Reduce", got, of(0, p, 0, n))
	}
	return errors.Join(err, equal("Allreduce", all, of(0, p, 0, n)),
		equal("Scan", upTo, of(0, me+1, 0, n)), equal("Exscan", below, of(0, me, 0, n)),
		equal("ReduceScatter", share, of(0, p, me*n, n)), equal("ReduceScatterBlock", block, of(0, p, me*n, n)))
}

// Forced algorithms are used, by the hint of one communicator or by rank 0's environment for all;
// other collectives are unaffected.
func TestForcedAlgorithms(t *testing.T) {
	environ := func(rank int) Option {
		return func(cfg *config) {
			lookup := cfg.lookup
			cfg.lookup = func(key string) (string, bool) {
				if key == EnvColl && cfg.place.Rank == rank {
					return "bcast=two-hop,allreduce=two-level:4", true
				}
				return lookup(key)
			}
		}
	}
	for _, other := range []bool{false, true} {
		TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
			chosen := func(c *Comm, collective collop.Operation, want string) error {
				p, err := listed(ctx, c)
				if err != nil {
					return err
				}
				got, err := p.Choose(collective, collectives.Shape{Bytes: 8, Commutative: true})
				if err == nil && (got.Algorithm.Name == want) == other {
					err = fmt.Errorf("%s: %s by %s, environment of %v", c.Name(), collective, got.Algorithm.Name, other)
				}
				return err
			}
			half, err := c.Split(ctx, c.Rank()%2, 0)
			if err != nil {
				return err
			}
			return errors.Join(chosen(c, collop.Bcast, "two-hop"), chosen(half, collop.Allreduce, "two-level:4"))
		}, WithPlaces(layouts[3].place), environ(map[bool]int{false: 0, true: 1}[other]))
	}

	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		info, _ := NewInfo(HintColl, "bcast=two-hop")
		dup, err := c.DupWithInfo(ctx, info)
		if err != nil {
			return err
		}
		again, err := dup.Dup(ctx)
		if err != nil {
			return err
		}
		name := func(c *Comm) string {
			p, err := listed(ctx, c)
			if err != nil {
				return err.Error()
			}
			got, _ := p.Choose(collop.Bcast, collectives.Shape{Bytes: 8})
			return got.Algorithm.Name
		}
		if name(dup) != "two-hop" || name(c) == "two-hop" || name(again) == "two-hop" {
			err = fmt.Errorf("forced on one: %s, its parent: %s, its child: %s", name(dup), name(c), name(again))
		}
		if got, _ := dup.GetInfo().Get(HintColl); got != "bcast=two-hop" {
			err = errors.Join(err, fmt.Errorf("the hint is %q", got))
		}
		off, _ := NewInfo(HintColl, "")
		bad, _ := NewInfo(HintColl, "bcast=telepathy")
		err = errors.Join(err, dup.SetInfo(off), expect(dup.SetInfo(bad), ErrArg, `"telepathy"`, "two-level"))
		if name(dup) == "two-hop" {
			err = errors.Join(err, errors.New("it is forced still"))
		}
		_, dupErr := c.DupWithInfo(ctx, bad)
		differ := info
		if c.Rank() == 2 {
			differ = off
		}
		_, differErr := c.DupWithInfo(ctx, differ)
		return errors.Join(err, expect(dupErr, ErrArg, `"telepathy"`), expect(differErr, ErrMismatch, "isthmus_coll"))
	}, WithPlaces(layouts[3].place))
}

// Init returns errors in the environment.
func TestOrders(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "learned")
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return name
	}
	initWith := func(key, value string) (*World, error) {
		return Init(t.Context(), func(cfg *config) {
			cfg.lookup = func(k string) (string, bool) {
				if k == key {
					return value, true
				}
				return "", false
			}
		})
	}
	for _, bad := range []struct{ key, value, want string }{
		{EnvColl, "bcast=telepathy", `bcast has no algorithm "telepathy", have `},
		{EnvColl, "broadcast=binomial", `no collective "broadcast"`},
		{EnvColl, "bcast", "collective=algorithm"},
		{EnvCollLearned, filepath.Join(dir, "none"), "no such file"},
		{EnvCollLearned, file("bcast two-level 64"), "line 1: 3 words"},
	} {
		if _, err := initWith(bad.key, bad.value); !errors.Is(err, ErrEnv) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s=%s: %v", bad.key, bad.value, err)
		}
	}
	for _, text := range []string{"bcast telepathy 64 1", "bcast two-level many 1", "bcast two-level 64 fast", "bcast two-level 64 NaN", "bcast two-level 64 1e9"} {
		if _, err := plan.ReadLearned(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 1: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	w, err := initWith(EnvCollLearned, file("# from the lab\n\nbcast two-level:8 65536 1.5 # slower\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Finalize(t.Context())
	if got := w.config.orders.Learned[collectives.LearnedKey(collop.Bcast, "two-level:8", 65536)]; got != 1.5 {
		t.Errorf("learned %v", w.config.orders.Learned)
	}
}

// All ranks get the same model, which has the measurements of the links: at the first call, again
// at the 64th, and for a communicator of some of the ranks.
func TestModelIsShared(t *testing.T) {
	l := layouts[1]
	var mu sync.Mutex
	models := map[string][]string{}
	note := func(ctx context.Context, c *Comm, what string) error {
		p, err := listed(ctx, c)
		if err != nil {
			return err
		}
		m := p.Model()
		mu.Lock()
		defer mu.Unlock()
		models[what] = append(models[what], fmt.Sprintf("%+v %v", *m, p.Layout()))
		return nil
	}
	// Ranks of every pair of sites have a link at the first exchange.
	ways[3].world(t, l.ranks, func(ctx context.Context, c *Comm) error {
		for other := range c.Size() {
			if _, err := Sendrecv(ctx, c, []int{1}, other, 0, []int{0}, other, 0); err != nil {
				return err
			}
		}
		if err := note(ctx, c, "first"); err != nil {
			return err
		}
		dup, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := note(ctx, dup, "dup"); err != nil {
			return err
		}
		some, err := c.Group().Incl([]int{5, 0, 1})
		if err != nil {
			return err
		}
		group, err := c.CreateGroup(ctx, some, 3)
		if err != nil {
			return err
		}
		if group != nil {
			if err := note(ctx, group, "group"); err != nil {
				return err
			}
		}
		for range 64 {
			if err := Barrier(ctx, c); err != nil {
				return err
			}
		}
		return note(ctx, c, "later")
	}, WithPlaces(l.place))
	for what, list := range models {
		if got := slices.Compact(slices.Clone(list)); len(got) != 1 {
			t.Errorf("%s: ranks have different models: %q", what, got)
		}
		if strings.Count(list[0], "Latency:10ms") > 4 { // to the site that is far, and within the site
			t.Errorf("%s: nothing was measured: %s", what, list[0])
		}
	}
	if models["dup"][0] != models["first"][0] {
		t.Error("a duplicate has another model")
	}
	if len(models["group"]) != 3 || len(models["later"]) != l.ranks {
		t.Errorf("%d and %d models", len(models["group"]), len(models["later"]))
	}
}

// Rank 0 prints each choice once.
func TestExplain(t *testing.T) {
	var out bytes.Buffer
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		for range 3 {
			if err := Bcast(ctx, c, make([]byte, 4096), 2); err != nil {
				return err
			}
		}
		return nil
	}, WithPlaces(layouts[3].place), func(cfg *config) {
		if cfg.place.Rank == 0 {
			cfg.explain = &out
		}
	})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "isthmus coll: world: bcast of 4096 bytes, root 2: ") || !strings.Contains(got, " predicted; next best ") {
		t.Errorf("it tells %q", got)
	}
}
