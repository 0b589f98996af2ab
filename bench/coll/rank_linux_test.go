package coll

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// TestMain plays the ranks.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "part" {
		if err := Part(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ask gives orders to a job of four processes and returns the answers.
func ask(t *testing.T, orders ...string) []string {
	t.Helper()
	t.Setenv(mpilib.EnvShared, "off") // what ranks of one node say through memory is in no count
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	err = ranks.Run(t.Context(), ranks.Job{
		Argv: []string{os.Args[0], "part"}, Count: 4, Size: 4, Key: key,
		Stdin: strings.NewReader(strings.Join(orders, "\n") + "\n"), Stdout: &out, Stderr: &said,
	})
	if err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1+len(orders) || lines[0] != "ready - - - - -" {
		t.Fatalf("%d orders, said\n%s", len(orders), out.Bytes())
	}
	return lines[1:]
}

// Every collective can be timed in both ways, and counted with its result checked.
func TestOrders(t *testing.T) {
	var orders []string
	for _, c := range operation.All() {
		size := 8 * 1000
		if c == operation.Barrier {
			size = 0
		}
		orders = append(orders, fmt.Sprintf("time %s %d 1 1 3 1000000", c, size), fmt.Sprintf("time %s %d 1 2 2 0", c, size), fmt.Sprintf("count %s %d 1", c, size),
			fmt.Sprintf("calls %s %d 1 2", c, size))
	}
	orders = append(orders, "calls none 0 0 2")
	measured := 0
	for i, answer := range ask(t, orders...) {
		words := strings.Fields(answer)
		o, err := parseOrder(orders[i])
		if err != nil {
			t.Fatal(err)
		}
		if words[0] == "no" { // mpilib or the table lacks it
			if !strings.Contains(answer, `no collective "`+o.collective) {
				t.Errorf("%s: %s", orders[i], answer)
			}
			continue
		}
		measured++
		if o.what == orderCalls {
			if answer != "ok" {
				t.Errorf("%s: %s", orders[i], answer)
			}
			continue
		}
		if o.what == orderCount {
			var s scenario
			s.sites, s.ranks, s.order = 4, 1, blocked // everything crosses
			if c, err := s.crossed(words[1:]); err != nil || c.messages < 3 || (c.bytes == 0) != (o.size == 0) {
				t.Errorf("%s: %s: %+v, %v", orders[i], answer, c, err)
			}
			continue
		}
		if len(words) != 2+o.count {
			t.Errorf("%s: %s", orders[i], answer)
		}
		for _, w := range words[2:] {
			if ns, err := strconv.ParseFloat(w, 64); err != nil || ns <= 0 {
				t.Errorf("%s: %s", orders[i], answer)
			}
		}
	}
	if measured < 4*len(Standard())-3 {
		t.Errorf("only %d of %d orders were carried out", measured, len(orders))
	}
}

// Two far-away repetitions of one order must not take the ranks apart: what one rank
// refuses all do, and the next order is carried out.
func TestRefused(t *testing.T) {
	answers := ask(t, "time sing 8 0 1 1 1000", "time sing 8 0 1 1 0", "count sing 8 0", "calls sing 8 0 2", "time bcast 8 0 1 1 1000")
	for i, want := range []string{"no ", "no ", "no ", "no ", "ok "} {
		if !strings.HasPrefix(answers[i], want) {
			t.Errorf("answer %d is %q, want %q", i, answers[i], want)
		}
	}
}

func TestParseOrder(t *testing.T) {
	for _, line := range []string{"", "time", "time bcast 8 0 1 1", "count bcast 8", "count bcast -8 0", "time bcast 8 0 1 0 0", "time bcast 8 0 x 1 0", "sing bcast 8 0", "calls bcast 8 0", "calls bcast 8 0 0", "time bcast 99999999999 0 1 1 1"} {
		if _, err := parseOrder(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

// Where only forced algorithms are asked for, nothing else has a pass, and what no pattern matches is not measured.
func TestPassesWithoutChoice(t *testing.T) {
	o := usual()
	o.Sites, o.RTT, o.Rate, o.Orders = []int{2}, []time.Duration{0}, []int64{0}, Orders()[:1]
	o.Collectives, o.Sizes, o.Algorithms, o.Only = []operation.Operation{operation.Reduce}, []int{8}, true, regexp.MustCompile(":(chain|two-level)$")
	passes := func() (said []string) {
		r := &run{Options: o}
		if err := r.plan(); err != nil {
			return []string{"none"}
		}
		for _, p := range r.passes(r.todo[0]) {
			var names []string
			for _, v := range p.variants {
				names = append(names, v.implementation(operation.Reduce))
			}
			said = append(said, strings.Join(names, " "))
		}
		return said
	}
	if got := passes(); !slices.Equal(got, []string{"isthmus", "isthmus isthmus:chain isthmus:two-level"}) {
		t.Errorf("with the choice there are passes of %q", got)
	}
	o.NoChoice = true
	if got := passes(); !slices.Equal(got, []string{"isthmus:chain isthmus:two-level"}) {
		t.Errorf("without it there are passes of %q", got)
	}
	o.Only = regexp.MustCompile("/isthmus$")
	if got := passes(); !slices.Equal(got, []string{"none"}) {
		t.Errorf("without what is asked for there are passes of %q", got)
	}
}
