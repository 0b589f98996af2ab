package choose

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Every number that a rank draws is heard once, at the place that the rank prints.
func TestRun(t *testing.T) {
	var mu sync.Mutex
	var all strings.Builder
	mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		var out bytes.Buffer
		err := run(ctx, comm, options{rounds: 5}, &out)
		mu.Lock()
		defer mu.Unlock()
		all.Write(out.Bytes())
		return err
	})
	drew := regexp.MustCompile(`rank (\d): round \d: drew (\d+), was number (\d+),`).FindAllStringSubmatch(all.String(), -1)
	for _, d := range drew {
		if line := "number " + d[3] + ": rank " + d[1] + " drew " + d[2] + "\n"; strings.Count(all.String(), line) != 1 {
			t.Errorf("%q is not there once", line)
		}
	}
	if len(drew) != 10 || strings.Count(all.String(), "SUCCESSFUL") != 1 {
		t.Errorf("it wrote\n%s", all.String())
	}
}

func TestParse(t *testing.T) {
	for _, args := range []string{"--rounds 0", "--round 1", "more"} {
		if _, err := parse(strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if o, err := parse(nil, nil); err != nil || o.rounds != 20 {
		t.Errorf("%+v, %v", o, err)
	}
}
