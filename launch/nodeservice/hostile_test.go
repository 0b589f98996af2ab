package nodeservice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// impostor is a Starter whose agents send what the test wants, as agents can that their job has
// taken over: they run in the same account.
type impostor struct {
	folder  string // the job's folder that they report
	account Account
	says    func(net.Conn) // after its answer to Open; nil: nothing

	mu    sync.Mutex
	conns []net.Conn
	ln    net.Listener
}

// Start implements Starter.
func (i *impostor) Start(_ Asker, _ string, s jobagent.Spec) (Account, error) {
	ln, err := net.FileListener(s.Listener)
	if err != nil {
		return Account{}, err
	}
	i.mu.Lock()
	i.ln = ln
	i.mu.Unlock()
	go func() { // ends with Kill
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			i.mu.Lock()
			i.conns = append(i.conns, c)
			i.mu.Unlock()
			b, _ := proto.Marshal(&nodepb.FromAgent{Say: &nodepb.FromAgent_Opened{Opened: &nodepb.Opened{Version: 1, Folder: []byte(i.folder)}}})
			c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
			if i.says != nil {
				c.Read(make([]byte, 4096)) // Open; unread, it would reset the connection
				i.says(c)
			}
			go io.Copy(io.Discard, c) // ends with the connection
		}
	}()
	return i.account, nil
}

// Kill implements Starter.
func (i *impostor) Kill(string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ln.Close()
	for _, c := range i.conns {
		c.Close()
	}
	return nil
}

// Ended implements Starter.
func (i *impostor) Ended(string) error { return nil }

// If a job agent reports a folder that is not its job's, the node service neither removes nor uses
// it: it would remove it in its own account, which can read the node's keys.
func TestAgentNamesAnotherFolder(t *testing.T) {
	for _, c := range []struct{ name, folder string }{
		{"elsewhere", "KEYS"}, {"the store itself", "JOBS/.."}, {"all jobs", "JOBS"}, {"another job's", "JOBS/other-1"},
		{"up and down", "JOBS/job-1/../../../keys"}, {"none", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := filepath.Join(t.TempDir(), "keys")
			if err := os.MkdirAll(keys, 0o700); err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(keys, "node.key")
			if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			there := &impostor{}
			h := newHost(t, func(o *Options) { o.Starter = there })
			there.folder = strings.NewReplacer("KEYS", keys, "JOBS", h.jobs()).Replace(c.folder)
			talk := h.talk().booked()
			m := talk.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"})})
			if m.GetStarted() != nil {
				t.Errorf("the node says %v", m)
			}
			talk.hang()
			h.stop()
			for _, f := range []string{key, h.agents()} {
				if _, err := os.Stat(f); err != nil {
					t.Errorf("something was removed: %v", err)
				}
			}
		})
	}
}

// lines counts what a node service logs.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// Who has taken an agent's socket can neither fill the helper's log nor keep it busy with new connections: the
// job ends.
func TestAgentsOfNoConduct(t *testing.T) {
	fault, _ := proto.Marshal(&nodepb.FromAgent{Say: &nodepb.FromAgent_Fault{Fault: &nodepb.Fault{Text: []byte("again")}}})
	fault = append(binary.BigEndian.AppendUint32(nil, uint32(len(fault))), fault...)
	for name, says := range map[string]func(net.Conn){
		"faults":   func(c net.Conn) { c.Write(bytes.Repeat(fault, 2000)); c.Close() },
		"hangs up": func(c net.Conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			there, log := &impostor{says: says}, &lines{}
			h := newHost(t, func(o *Options) {
				o.Starter, o.Log = there, slog.New(slog.NewTextHandler(log, nil))
			})
			there.folder = filepath.Join(h.jobs(), "job-1")
			c := h.talk().booked()
			c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"})}) // its answer, or the first failure, comes first
			testkit.Until(h.t, "the agent's end", func() bool {
				ended := false
				h.do(func(time.Time) {
					ended = true
					for _, b := range h.bookings {
						ended = ended && b.agent.hasEnded()
					}
				})
				return ended
			})
			there.mu.Lock()
			defer there.mu.Unlock()
			if n := len(there.conns); n > 2*maxConnects+2 {
				t.Errorf("%d connections were made", n)
			}
			if n := log.n.Load(); n > 20 {
				t.Errorf("%d lines were logged", n)
			}
			c.cancel() // waits for no acknowledgement
		})
	}
}

// A helper reads an agent's messages at the rate that is permitted, and no faster.
func TestAgentsAreHeardAtTheirRate(t *testing.T) {
	said, _ := proto.Marshal(&nodepb.FromAgent{Say: &nodepb.FromAgent_Fault{Fault: &nodepb.Fault{Text: []byte("x")}}})
	message := append(binary.BigEndian.AppendUint32(nil, uint32(len(said))), said...)
	const count = 3 * agentBurst / messageCost
	path := filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	written := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			defer c.Close()
			answer, _ := proto.Marshal(&nodepb.FromAgent{Say: &nodepb.FromAgent_Opened{Opened: &nodepb.Opened{Version: 1}}})
			c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			c.Read(make([]byte, 4096)) // Open; unread, it would reset the connection
			_, err = c.Write(bytes.Repeat(message, count))
		}
		written <- err
	}()
	link, err := jobagent.Dial(path, &nodepb.Open{})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := newConduct(begin)
		c.faulted = true // and so the messages are passed over
		if err := (&agent{left: make(chan struct{})}).hear(link, c); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		want := time.Duration(float64(count*(len(said)+messageCost)-agentBurst) / agentRate * float64(time.Second))
		if took := time.Since(begin); took < want-time.Millisecond || took > want+time.Millisecond {
			t.Errorf("%d messages are read in %v, want %v", count, took, want)
		}
	})
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// Messages come at the rate that is permitted, whatever their sizes; an idle time saves no more than a burst. Connections that do
// not last are made ever more slowly.
func TestConductOfAgents(t *testing.T) {
	for _, size := range []int{0, 1 << 10, 32 << 10, 4 << 20} {
		now := time.Unix(1e9, 0)
		c := newConduct(now)
		now = now.Add(time.Hour)
		start, taken := now, 0
		for now.Sub(start) < 10*time.Second {
			now = now.Add(c.took(size, now) + 1)
			taken += size + messageCost
		}
		if most := agentBurst + 10*agentRate + size + messageCost; taken > most || taken < most*9/10 {
			t.Errorf("messages of %d bytes: %d bytes in 10 s, want almost %d", size, taken, most)
		}
	}
	now := time.Unix(1e9, 0)
	c := newConduct(now)
	var pauses []time.Duration
	for range 8 {
		c.connected(now)
		pauses = append(pauses, c.failed(now)/time.Millisecond)
	}
	if want := []time.Duration{0, 100, 200, 400, 800, 1600, 1600, 1600}; !slices.Equal(pauses, want) {
		t.Errorf("%d ms, want %d", pauses, want)
	}
	c.failed(now) // no connection was made
	if c.tries != 9 {
		t.Errorf("%d tries", c.tries)
	}
	c.connected(now)
	if pause := c.failed(now.Add(steadyTime)); pause != 0 || c.tries != 1 {
		t.Errorf("after a connection that lasted: %v, %d tries", pause, c.tries)
	}
}
