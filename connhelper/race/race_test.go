package race

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func steps(ts ...overlay.Technique) (s []overlay.Step) {
	for _, t := range ts {
		s = append(s, overlay.Step{Technique: t})
	}
	return s
}

func TestLineUp(t *testing.T) {
	for _, tc := range []struct {
		steps  []overlay.Step
		winner DialResult
		want   string
	}{
		{steps(overlay.Direct), DialResult{}, "direct 0s"},
		{steps(overlay.Direct, overlay.Relay), DialResult{}, "direct 0s, relay 50ms"},
		{steps(overlay.Relay), DialResult{}, "relay 0s"},
		{steps(overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching, overlay.Relay), DialResult{},
			"simultaneous-open 0s, traversing 100ms, hole-punching 200ms, relay 50ms"},
		{steps(overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching, overlay.Relay), DialResult{Technique: overlay.HolePunching},
			"hole-punching 0s, simultaneous-open 0s, traversing 100ms, relay 50ms"},
		{steps(overlay.SimultaneousOpen, overlay.HolePunching, overlay.Relay), DialResult{overlay.HolePunching, 70 * time.Millisecond},
			"hole-punching 0s, simultaneous-open 0s, relay 140ms"},
		{steps(overlay.SimultaneousOpen, overlay.HolePunching, overlay.Relay), DialResult{overlay.SimultaneousOpen, 4 * time.Second},
			"simultaneous-open 0s, hole-punching 400ms, relay 400ms"},
		{steps(overlay.SimultaneousOpen, overlay.Relay), DialResult{overlay.Relay, time.Second}, "relay 0s, simultaneous-open 0s"},
	} {
		got := ""
		for i, e := range LineUp(tc.steps, nil, tc.winner) {
			if i > 0 {
				got += ", "
			}
			got += fmt.Sprintf("%v %v", e.Step.Technique, e.Start)
		}
		if got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// script is what an attempt does: end after a time, well or not.
type script struct {
	takes time.Duration
	fails bool
}

// dropper is a connection that notes that it was dropped.
type dropper func()

func (d dropper) Drop() { d() }

// run races scripted attempts in virtual time and returns the winner, when it
// was known, and which attempts were dropped.
func run(t *testing.T, plan []overlay.Step, winner overlay.Technique, scripts map[overlay.Technique]script) (won overlay.Technique, after time.Duration, dropped []overlay.Technique, started map[overlay.Technique]time.Duration) {
	return runLast(t, plan, nil, winner, scripts)
}

// runLast is run with last resorts.
func runLast(t *testing.T, plan, last []overlay.Step, winner overlay.Technique, scripts map[overlay.Technique]script) (won overlay.Technique, after time.Duration, dropped []overlay.Technique, started map[overlay.Technique]time.Duration) {
	started = map[overlay.Technique]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all sync.WaitGroup
		begin := time.Now()
		try := func(ctx context.Context, s overlay.Step) (dropper, error) {
			mu.Lock()
			started[s.Technique] = time.Since(begin)
			mu.Unlock()
			sc := scripts[s.Technique]
			select {
			case <-time.After(sc.takes):
			case <-ctx.Done():
				return dropper(nil), ctx.Err()
			}
			if sc.fails {
				return dropper(nil), errors.New("no")
			}
			return dropper(func() {
				mu.Lock()
				defer mu.Unlock()
				dropped = append(dropped, s.Technique)
			}), nil
		}
		entries := LineUp(plan, last, DialResult{Technique: winner})
		got, i := Run(t.Context(), all.Go, entries, try)
		after = time.Since(begin)
		if i >= 0 {
			won = entries[i].Step.Technique
		} else if len(got) != len(entries) {
			t.Errorf("%d outcomes of %d failures", len(got), len(entries))
		}
		all.Wait()
	})
	return won, after, dropped, started
}

func TestRace(t *testing.T) {
	const ms = time.Millisecond
	full := steps(overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching, overlay.Relay)
	for name, tc := range map[string]struct {
		plan    []overlay.Step
		scripts map[overlay.Technique]script
		won     overlay.Technique
		after   time.Duration
		dropped []overlay.Technique
	}{
		"the first works at once": {full, map[overlay.Technique]script{overlay.SimultaneousOpen: {takes: 30 * ms}}, overlay.SimultaneousOpen, 30 * ms, nil},
		"a better one within patience": {full, map[overlay.Technique]script{
			overlay.SimultaneousOpen: {takes: 200 * ms}, overlay.Traversing: {takes: time.Hour}, overlay.HolePunching: {takes: time.Hour}, overlay.Relay: {takes: 40 * ms}},
			overlay.SimultaneousOpen, 200 * ms, []overlay.Technique{overlay.Relay}},
		"patience ends": {full, map[overlay.Technique]script{
			overlay.SimultaneousOpen: {takes: time.Hour}, overlay.Traversing: {takes: time.Hour}, overlay.HolePunching: {takes: time.Hour}, overlay.Relay: {takes: 40 * ms}},
			overlay.Relay, patience, nil},
		"all better ones fail": {full, map[overlay.Technique]script{
			overlay.SimultaneousOpen: {20 * ms, true}, overlay.Traversing: {1 * ms, true}, overlay.HolePunching: {1 * ms, true}, overlay.Relay: {takes: 40 * ms}},
			overlay.Relay, 201 * ms, nil},
		"a slow relay is taken when ready": {full, map[overlay.Technique]script{
			overlay.SimultaneousOpen: {takes: time.Hour}, overlay.Traversing: {takes: time.Hour}, overlay.HolePunching: {takes: time.Hour}, overlay.Relay: {takes: 900 * ms}},
			overlay.Relay, 950 * ms, nil},
		"everything fails": {full, map[overlay.Technique]script{
			overlay.SimultaneousOpen: {5 * ms, true}, overlay.Traversing: {5 * ms, true}, overlay.HolePunching: {5 * ms, true}, overlay.Relay: {5 * ms, true}},
			0, 20 * ms, nil}, // one after the other
		"one failure starts the next when nothing else runs": {steps(overlay.Direct, overlay.HolePunching), map[overlay.Technique]script{
			overlay.Direct: {5 * ms, true}, overlay.HolePunching: {takes: 10 * ms}}, overlay.HolePunching, 15 * ms, nil},
		"a better one that is late is dropped": {steps(overlay.Direct, overlay.Relay), map[overlay.Technique]script{
			overlay.Direct: {takes: 10 * ms}, overlay.Relay: {takes: 1}}, overlay.Direct, 10 * ms, nil},
	} {
		won, after, dropped, _ := run(t, tc.plan, 0, tc.scripts)
		if won != tc.won || after != tc.after || !slices.Equal(dropped, tc.dropped) {
			t.Errorf("%s: %v won after %v, dropped %v; want %v after %v, dropped %v", name, won, after, dropped, tc.won, tc.after, tc.dropped)
		}
	}
}

// TestRaceAlwaysEnds races random scripts: there is a winner exactly if one
// attempt can work, nothing that was made is lost, and a relay that is ready
// waits no longer than patience.
func TestRaceAlwaysEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var plan []overlay.Step
		scripts := map[overlay.Technique]script{}
		works := false
		for _, tech := range overlay.Techniques() {
			if rng.IntN(2) == 0 {
				continue
			}
			plan = append(plan, overlay.Step{Technique: tech})
			sc := script{time.Duration(rng.IntN(600)) * time.Millisecond, rng.IntN(2) == 0}
			scripts[tech] = sc
			works = works || !sc.fails
		}
		if len(plan) == 0 {
			continue
		}
		winner := overlay.Techniques()[rng.IntN(len(overlay.Techniques()))]
		won, after, _, started := run(t, plan, winner, scripts)
		if works != (won != 0) {
			t.Fatalf("%v: winner %v", scripts, won)
		}
		if won == 0 {
			continue
		}
		if sc := scripts[won]; sc.fails || after < started[won]+sc.takes {
			t.Fatalf("%v: %v won after %v", scripts, won, after)
		}
		for tech, sc := range scripts {
			if !sc.fails && tech < won && started[tech]+sc.takes < after && started[tech] > 0 {
				t.Fatalf("%v: %v won after %v, %v was ready before", scripts, won, after, tech)
			}
		}
		if ready := started[won] + scripts[won].takes; after > max(ready, patience) {
			t.Fatalf("%v: %v was ready after %v and taken after %v", scripts, won, ready, after)
		}
	}
}

// TestRaceIsCalledOff: when its context ends, so does the race.
func TestRaceIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		begin := time.Now()
		got, i := Run(ctx, all.Go, LineUp(steps(overlay.Direct, overlay.Relay), nil, DialResult{}), func(ctx context.Context, _ overlay.Step) (dropper, error) {
			<-ctx.Done()
			return dropper(nil), ctx.Err()
		})
		if i != -1 || len(got) != 2 || time.Since(begin) != 70*time.Millisecond {
			t.Errorf("winner %d, outcomes %v after %v", i, got, time.Since(begin))
		}
		all.Wait()
	})
}

// TestLastResorts: a last resort starts when all else has failed or has been silent for long, and
// delays nothing that connects before.
func TestLastResorts(t *testing.T) {
	const ms, never = time.Millisecond, time.Hour
	for _, tc := range []struct {
		name    string
		last    []overlay.Step
		scripts map[overlay.Technique]script
		won     overlay.Technique
		after   time.Duration
		started map[overlay.Technique]time.Duration // of the last resorts
	}{
		{name: "another works", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: never}, overlay.Relay: {takes: 70 * ms}},
			won: overlay.Relay, after: patience},
		{name: "the best of the others works", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: 40 * ms}, overlay.Relay: {takes: never}},
			won: overlay.HolePunching, after: 40 * ms},
		{name: "only a relay is left", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: 10 * ms, fails: true}, overlay.Relay: {takes: 300 * ms}},
			won: overlay.Relay, after: 310 * ms},
		{name: "all others fail", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: 10 * ms, fails: true}, overlay.Relay: {takes: 20 * ms, fails: true}, overlay.Direct: {takes: 5 * ms}},
			won: overlay.Direct, after: 35 * ms, started: map[overlay.Technique]time.Duration{overlay.Direct: 30 * ms}},
		{name: "all others are silent", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: never}, overlay.Relay: {takes: never}, overlay.Direct: {takes: 5 * ms}},
			won: overlay.Direct, after: lastStart + 5*ms, started: map[overlay.Technique]time.Duration{overlay.Direct: lastStart}},
		{name: "a slow relay after that", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {takes: never}, overlay.Relay: {takes: 3 * time.Second}, overlay.Direct: {takes: never}},
			won: overlay.Relay, after: 3050 * ms, started: map[overlay.Technique]time.Duration{overlay.Direct: lastStart}},
		{name: "one after the other", last: steps(overlay.Reversed, overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {fails: true}, overlay.Relay: {fails: true}, overlay.Reversed: {takes: 50 * ms, fails: true}, overlay.Direct: {takes: 5 * ms}},
			won: overlay.Direct, after: 55 * ms, started: map[overlay.Technique]time.Duration{overlay.Reversed: 0, overlay.Direct: 50 * ms}},
		{name: "nothing works", last: steps(overlay.Direct), scripts: map[overlay.Technique]script{overlay.HolePunching: {fails: true}, overlay.Relay: {fails: true}, overlay.Direct: {takes: 5 * ms, fails: true}},
			after: 5 * ms, started: map[overlay.Technique]time.Duration{overlay.Direct: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			won, after, _, started := runLast(t, steps(overlay.HolePunching, overlay.Relay), tc.last, 0, tc.scripts)
			if won != tc.won || after != tc.after {
				t.Errorf("%v after %v, want %v after %v", won, after, tc.won, tc.after)
			}
			for _, s := range tc.last {
				at, tried := started[s.Technique]
				if want, try := tc.started[s.Technique]; tried != try || at != want {
					t.Errorf("%v started %v after %v, want %v after %v", s.Technique, tried, at, try, want)
				}
			}
		})
	}
}
