package audit

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

func sample() Record {
	return Record{
		Seq: 7, Time: time.Date(2026, 11, 17, 9, 30, 0, 123456000, time.UTC), Daemon: "proxy p1", Event: LinkEnd,
		User: "alice", Project: "climate", Job: "j1", Ranks: []uint32{0, 5}, Sites: []string{"a", "b"},
		Technique: "relay", Relay: "p1", Link: "00ff", Sent: 2e12, Received: 17, Seconds: 12.5,
		Reason: "both ends closed", Prev: strings.Repeat("ab", 32),
	}
}

func TestRecordLine(t *testing.T) {
	r := sample()
	const golden = `{"seq":7,"time":"2026-11-17T09:30:00.123456Z","daemon":"proxy p1","event":"link-end",` +
		`"user":"alice","project":"climate","job":"j1","ranks":[0,5],"sites":["a","b"],` +
		`"technique":"relay","relay":"p1","link":"00ff","sent":2000000000000,"received":17,"seconds":12.5,` +
		`"reason":"both ends closed","prev":"abababababababababababababababababababababababababababababababab"}` + "\n"
	if got := r.encode(nil); string(got) != golden {
		t.Errorf("encoded as\n%swant\n%s", got, golden)
	}
	back, err := Parse([]byte(golden))
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("read as %+v, %v", back, err)
	}
	for n := range len(golden) - 1 {
		if _, err := Parse([]byte(golden[:n])); err == nil {
			t.Errorf("the first %d bytes are a record", n)
		}
	}
	for _, bad := range []string{golden + "x", strings.Replace(golden, "seq", "sqe", 1), "[]", "null\x00"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is a record", bad)
		}
	}
}

// Untrusted text cannot end a line, begin another or mislead a terminal.
func TestInjection(t *testing.T) {
	evil := "x\n{\"seq\":1,\"event\":\"decision\"}\r\x1b[2J\x00\u202egnp.exe\u2028\x9b1m\xff\\n" + strings.Repeat("é", 5000)
	r := Record{
		Event: Event("refusal"), Daemon: evil, User: evil, Project: evil, Job: evil, Sites: []string{evil}, Nodes: []string{evil, evil},
		Technique: evil, Relay: evil, Link: evil, Peer: evil, Rule: evil, Reason: evil, Effect: evil, Seconds: math.Inf(1),
		Ranks: make([]uint32, 1000),
	}
	r.clean()
	line := r.encode(nil)
	if bytes.Count(line, []byte("\n")) != 1 || len(line) > maxLine {
		t.Fatalf("%d bytes, %d lines", len(line), bytes.Count(line, []byte("\n")))
	}
	for _, c := range string(line[:len(line)-1]) {
		if c < ' ' || c > '~' && c != 'é' && c != '…' {
			t.Fatalf("%q is in the line", c)
		}
	}
	back, err := Parse(line)
	if err != nil || !strings.HasPrefix(back.User, `x\n{"seq":1,"event":"decision"}\r\x1b[2J\x00\u202egnp.exe\u2028\x9b1m\xff\\n`) {
		t.Errorf("%q, %v", back.User, err)
	}
	if s := "Jürgen \"Q\" <a@b>"; Printable(s) != s {
		t.Errorf("plain text becomes %q", Printable(s))
	}
}

func FuzzRecord(f *testing.F) {
	r := sample()
	f.Add(r.encode(nil))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) > maxLine {
			return
		}
		r, err := Parse(line)
		if err != nil {
			return
		}
		r.clean()
		once := r.encode(nil)
		again, err := Parse(once)
		if err != nil || bytes.Count(once, []byte("\n")) != 1 || !bytes.Equal(again.encode(nil), once) {
			t.Errorf("%q becomes %q, %v", line, once, err)
		}
	})
}

// Whatever is in a file, reading it ends with an error or a report.
func FuzzVerify(f *testing.F) {
	a := sample()
	buf, _ := chain(Head{}, []Record{a, a, a})
	f.Add(buf)
	f.Add(buf[:len(buf)-9])
	f.Fuzz(func(t *testing.T, text []byte) {
		v := verifier{}
		if err := v.read("f", bytes.NewReader(text)); err == nil && v.report.Records != uint64(bytes.Count(text, []byte("\n"))) {
			t.Errorf("%d records in %q", v.report.Records, text)
		}
	})
}

// The record of a link's end has all that the daemon knows of it.
func TestEndOf(t *testing.T) {
	got := EndOf(account.LinkEnded{
		ID: "00ff", Principal: overlay.Principal{User: "alice", Project: "climate"}, Job: "j1", Ranks: []uint32{0, 5},
		Nodes:     []overlay.NodeID{{Site: "a", Name: "a1"}, {Site: "b"}}, // of the second only the site is known
		Technique: "relay", Relay: "p1", Peer: "192.0.2.1:1 192.0.2.2:2", Traffic: carrier.Stats{AToB: 3, BToA: 4, Spliced: 7}, Lasted: 1500 * time.Millisecond,
		Err: errors.New("cut"), Rule: "r", Reason: "cut", LimitedTo: "1Mbit/s", LimitedBy: "quota.rate", Count: 2,
	})
	want := Record{
		Event: LinkEnd, User: "alice", Project: "climate", Job: "j1", Ranks: []uint32{0, 5}, Sites: []string{"a", "b"}, Nodes: []string{"a1"},
		Technique: "relay", Relay: "p1", Link: "00ff", Peer: "192.0.2.1:1 192.0.2.2:2", Sent: 3, Received: 4, Seconds: 1.5, Rule: "r", Reason: "cut", Count: 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
