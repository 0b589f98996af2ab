package runmap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// reports writes the reports that ranks 0 to 3 on alpha/n1 might leave: rank 2 was silent, 3 died.
func reports(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for rank, links := range [][]mpilib.LinkInfo{
		{
			{Rank: 0, Peer: 1, Node: "alpha/n1", PeerNode: "alpha/n1", Technique: "local", RTTMS: 0.05, MessagesSent: 1, BytesSent: 40, Carriers: 1},
			{Rank: 0, Peer: 4, Node: "alpha/n1", PeerNode: "beta/n1", Technique: "relay", Proxy: "p1", RTTMS: 20, Bandwidth: 11e6, MessagesSent: 7, BytesSent: 3e6, Carriers: 2, Cipher: "TLS_AES_128_GCM_SHA256", Reason: "nothing else; held to 16Mbit/s by quota.per_job.rate of proxy p1; more"},
			{Rank: 0, Peer: 5, Node: "alpha/n1", PeerNode: "beta/n1", Technique: "direct", RTTMS: 10, Carriers: 1},
		},
		{
			{Rank: 1, Peer: 0, Node: "alpha/n1", PeerNode: "alpha/n1", Technique: "local", RTTMS: 0.07, MessagesReceived: 1, BytesReceived: 40, Carriers: 1},
			{Rank: 1, Peer: 5, Node: "alpha/n1", PeerNode: "beta/n1", Technique: "direct", RTTMS: 12, Carriers: 1},
		},
		{},
	} {
		var text bytes.Buffer
		for _, l := range links {
			if err := json.NewEncoder(&text).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank-%d.json", rank)), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const drawn = `
where the 8 ranks ran
  alpha  n1  ranks 0-3
  beta   n1  ranks 4-5
  unknown: ranks 6-7; no local rank exchanged messages with them

paths used, as seen by the ranks that ran here
  from   to     technique                                 links  RTT ms         MB/s     messages out, in  MB out, in
  alpha  alpha  local                                     2      0.05 - 0.07    unknown  1, 1              <0.01, <0.01
  alpha  beta   direct                                    2      10.00 - 12.00  unknown  0, 0              0, 0
  alpha  beta   relay through p1, 2 carriers, encrypted   1      20.00          11       7, 0              3.00, 0
  alpha to beta, relay through p1, 2 carriers, encrypted: held to 16Mbit/s by quota.per_job.rate of proxy p1, shared with all other traffic under that rule
  MB/s is the rate of links while more data was waiting to be sent; unknown where that was never so for long enough.

ranks 3 left no report, so their paths are missing: they exited without Finalize, or do not use this library

This covers ranks 0-3; the launchers of the other ranks show theirs.
`

func TestDraw(t *testing.T) {
	m, err := Read(reports(t), 0, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := m.Write(&out); err != nil || squeeze(out.String()) != squeeze(drawn) {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), drawn)
	}
}

// squeeze makes comparisons ignore the widths of columns.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

func TestJSON(t *testing.T) {
	m, err := Read(reports(t), 0, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := m.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	ranks, pairs := 0, 0
	for dec := json.NewDecoder(&out); dec.More(); {
		var object map[string]any
		if err := dec.Decode(&object); err != nil {
			t.Fatal(err)
		}
		if _, isPair := object["from"]; !isPair {
			ranks++
			continue
		}
		pairs++
		if object["from"] == 0.0 && object["to"] == 4.0 && (object["technique"] != "relay" || object["bandwidth"] != 11e6 || object["to_node"] != "beta/n1") {
			t.Errorf("%v", object)
		}
		if _, known := object["bandwidth"]; known && object["to"] != 4.0 {
			t.Errorf("a bandwidth that nobody knows: %v", object)
		}
	}
	if ranks != 6 || pairs != 5 {
		t.Errorf("%d ranks and %d pairs, want 6 and 5", ranks, pairs)
	}
}

// A report has all properties of a link, under the names that mpilib writes; only which process asked for
// the link is not shown.
func TestReportOfLibrary(t *testing.T) {
	if ranks.EnvReport != mpilib.EnvReport {
		t.Errorf("isthmus run sets %s, and mpilib reads %s", ranks.EnvReport, mpilib.EnvReport)
	}
	written, err := json.Marshal(mpilib.LinkInfo{Rank: 1, Replica: 11, Node: "a/n1", Peer: 2, PeerReplica: 12, PeerNode: "b/n2", Technique: "relay", Via: "gateway", Proxy: "p1",
		Cipher: "c", Reason: "r", SetupMS: 3, Carriers: 4, RTTMS: 5, Bandwidth: 6, MessagesSent: 7, BytesSent: 8, MessagesReceived: 9, BytesReceived: 10})
	if err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(written, &read); err != nil {
		t.Fatal(err)
	}
	want := report{1, 11, "a/n1", 2, 12, "b/n2", figures{"relay", "gateway", "p1", "c", "r", 4, 3, 5, 6, 7, 8, 9, 10}}
	if read != want {
		t.Errorf("%+v\nwant\n%+v", read, want)
	}
}

// Without a helper, and without a message.
func TestOneMachine(t *testing.T) {
	dir := t.TempDir()
	link, err := json.Marshal(mpilib.LinkInfo{Rank: 0, Peer: 1, Technique: "local"})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"rank-0.json": link, "rank-1.json": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		first, count int
		want         string
	}{
		{0, 2, "this machine ranks 0-1"},
		{1, 1, "ranks exchanged no messages"},
	} {
		m, err := Read(dir, tc.first, tc.count, 2)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := m.Write(&out); err != nil || !strings.Contains(squeeze(out.String()), tc.want) {
			t.Errorf("%v\n%s\nwant %q", err, out.String(), tc.want)
		}
	}
}

func TestBrokenReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rank-0.json"), []byte(`{"rank":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, 0, 1, 1); err == nil || !strings.Contains(err.Error(), "report of rank 0") {
		t.Errorf("%v", err)
	}
}

// Replicas are shown one by one: each where it ran, with its own links. A pinned rank has one.
func TestReplicas(t *testing.T) {
	dir := t.TempDir()
	for node, links := range map[string][]mpilib.LinkInfo{
		"a/n1": {{Rank: 0, Node: "a/n1", Peer: 1, PeerNode: "a/n1", Technique: "local"}, {Rank: 1, Node: "a/n1", Peer: 1, PeerReplica: 1, PeerNode: "b/n1", Technique: "direct", MessagesSent: 3}},
		"b/n1": {{Rank: 1, Replica: 1, Node: "b/n1", Peer: 1, PeerNode: "a/n1", Technique: "direct", MessagesReceived: 3}},
	} {
		var text bytes.Buffer
		for _, l := range links {
			if err := json.NewEncoder(&text).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, node), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, node, ReportName), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ReadHosts(dir, map[Process]string{{0, 0}: "a/n1", {1, 0}: "a/n1", {2, 0}: "a/n1", {1, 1}: "b/n1", {2, 1}: "b/n2"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"where the 3 ranks ran, in replicas; 0/1 is replica 1 of rank 0\na n1 ranks 0-2\nb n1 ranks 1/1\nb n2 ranks 2/1\n",
		"\na a local 1 ", "\na b direct 1 unknown unknown 3, 0 ", "\nb a direct 1 unknown unknown 0, 3 ", "\nranks 2/1 left no report,",
	} {
		if !strings.Contains(squeeze(out.String()), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	var objects bytes.Buffer
	if err := m.WriteJSON(&objects); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"rank":1,"replica":1,"node":"b/n1","here":true,"reported":true}`, `{"rank":2,"replica":1,"node":"b/n2","here":true,"reported":false}`,
		`{"from":1,"to":1,"to_replica":1,"from_node":"a/n1","to_node":"b/n1",`, `{"from":1,"from_replica":1,"to":1,"from_node":"b/n1","to_node":"a/n1",`,
	} {
		if !strings.Contains(objects.String(), want) {
			t.Errorf("no %s in\n%s", want, objects.String())
		}
	}
	if n := strings.Count(objects.String(), "\n"); n != 8 {
		t.Errorf("%d objects, want 8", n)
	}
}
