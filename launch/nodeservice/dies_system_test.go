//go:build system

package nodeservice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// Whatever the step at which a submitter dies, nothing stays behind; a process that ignores SIGTERM is soon
// killed.
func TestSubmitterDies(t *testing.T) {
	h := newHost(t, func(o *Options) {
		o.Orphan = 50 * time.Millisecond
		o.Policy.Jobs = 100
	})
	pids := filepath.Join(t.TempDir(), "pids")
	if err := os.WriteFile(pids, nil, 0o600); err != nil { // on a busy machine the scripts may be killed before they write
		t.Fatal(err)
	}
	script := fmt.Sprintf("echo $$ >>%s; sleep 1000 & echo $! >>%[1]s; trap '' TERM; sleep 1000", pids)
	for name, upTo := range map[string]func(*talk){
		"asked":  func(*talk) {},
		"staged": func(c *talk) { c.brings("file", "content") },
		"half staged": func(c *talk) {
			c.manifest("file", []byte("other content"))
			c.hear()
		},
		"started": func(c *talk) { c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"sh", "-c", script})}) },
		"running": func(c *talk) { c.runs(script, nil) },
		"input full": func(c *talk) {
			c.runs(script, func(s *nodepb.Start) { s.Input = true })
			c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: make([]byte, jobagent.MaxInput)}}})
		},
		"shouting": func(c *talk) { c.runs("yes; yes >&2", nil) },
		"over":     func(c *talk) { c.runs("true", nil) },
		"at once, in whatever state": func(c *talk) {
			c.runs("setsid sleep 0.1; echo x >file", func(s *nodepb.Start) { s.Outputs = nodepb.Bytes([]string{"*"}) })
			c.hang()
		},
	} {
		c := h.talk().booked()
		upTo(c)
		c.hang()
		if t.Failed() {
			t.Fatal(name)
		}
	}
	h.empty()
	list, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(list)) {
		if runsStill(pid, pids) {
			t.Errorf("process %s is still there", pid)
		}
	}
	if n, err := h.count(); n != 0 || err != nil {
		t.Errorf("%d reservations: %v", n, err)
	}
}
