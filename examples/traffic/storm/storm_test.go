package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestTakePart(t *testing.T) {
	for _, n := range []int{1, 2, 5, 12} {
		mpilib.TestWorld(t, n, func(ctx context.Context, c *mpilib.Comm) error {
			var out bytes.Buffer
			o, err := parse([]string{"--for", "10ms", "--max", "200000", "--json"}, &out)
			if err != nil {
				return err
			}
			if err := takePart(ctx, c, o, &out); err != nil || c.Rank() != 0 {
				return err
			}
			said, figures, _ := strings.Cut(out.String(), "\n")
			var all tally
			if err := json.Unmarshal([]byte(figures), &all); err != nil {
				return fmt.Errorf("%w in %q", err, figures)
			}
			if said != fmt.Sprintf("%d ranks are there", n) || all.Ranks != n || all.Rounds < 1 || all.Messages != uint64(n*n*all.Rounds) ||
				all.Bytes < headerLen*all.Messages || all.FirstBytes == 0 || all.LastBytes == 0 || all.MaxBytes == 0 || all.PeakBytes < all.MaxBytes {
				return fmt.Errorf("%q, %+v", said, all)
			}
			return nil
		})
	}
}

// Where ranks have replicas, all of them exchange the same, as long as one of them says, and print the same figures.
func TestReplicas(t *testing.T) {
	var mu sync.Mutex
	var printed []string
	mpilib.TestWorld(t, 3, func(ctx context.Context, c *mpilib.Comm) error {
		var out bytes.Buffer
		err := takePart(ctx, c, options{plan: plan{max: 200_000, seed: 1}, last: 50 * time.Millisecond, json: true}, &out)
		if c.Rank() == 0 {
			mu.Lock()
			defer mu.Unlock()
			printed = append(printed, out.String())
		}
		return err
	}, mpilib.WithReplicas(2))
	if len(printed) != 2 || printed[0] != printed[1] || !strings.Contains(printed[0], `"ranks":3`) {
		t.Errorf("the replicas of rank 0 print\n%s", strings.Join(printed, ""))
	}
}

// Every byte that is other than it was sent is noticed, whatever it is of.
func TestCheck(t *testing.T) {
	buf := make([]byte, 100)
	fill(buf, 3, 4, 5)
	if err := check(buf, 3, 4, 5); err != nil {
		t.Fatal(err)
	}
	for i := range buf {
		buf[i]++
		if err := check(buf, 3, 4, 5); err == nil {
			t.Errorf("byte %d was changed unseen", i)
		}
		buf[i]--
	}
	if check(buf, 4, 4, 5) == nil || check(buf, 3, 5, 5) == nil || check(buf, 3, 4, 4) == nil || check(buf[:99], 3, 4, 5) == nil {
		t.Error("another message was taken for this one")
	}
}

// Sizes are within bounds, and reach both ends of them.
func TestSizes(t *testing.T) {
	for _, most := range []int{headerLen, headerLen + 1, 1000} {
		p, least, largest := plan{max: most}, most, 0
		for round := range 3000 {
			n := p.size(p.rng(round, 1, 2))
			least, largest = min(least, n), max(largest, n)
		}
		if least != headerLen || largest > most || largest < most-most/10 {
			t.Errorf("up to %d: %d to %d", most, least, largest)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"--max 15", "--max 100000000", "more", "--for never", "--nonsense"} {
		if _, err := parse(strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if status := example.Exec(t.Context(), []string{"--help"}, new(bytes.Buffer), new(bytes.Buffer)); status != 0 {
		t.Error(status)
	}
}
