package nodeservice

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
)

// impostor is a Starter whose agents send what the test wants, as agents can that their job has
// taken over: they run in the same account.
type impostor struct {
	folder  string // the job's folder that they report
	account Account

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
			b, _ := proto.Marshal(&gatepb.FromAgent{Say: &gatepb.FromAgent_Opened{Opened: &gatepb.Opened{Version: 1, Folder: []byte(i.folder)}}})
			c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
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
			m := talk.start(&gatepb.Start{Argv: gatepb.Bytes([]string{"true"})})
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
