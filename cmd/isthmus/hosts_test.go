package main

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

func TestHostsOutput(t *testing.T) {
	hosts := []*nodepb.Host{
		{Node: "a/n1", State: "up", Jobs: 2, Processes: 8, Memory: 3 << 29, Cpu: 7500, Power: 1900, LatencyNs: 10_512_000},
		{Node: "a/n2", State: "up"},
		{Node: "b/n1", State: "away", SilentMs: 61_400, Jobs: 1, Processes: 4},
	}
	free := map[string]int{"a/n1": 0}
	var table, lines strings.Builder
	if err := hostsTable(&table, hosts, free); err != nil {
		t.Fatal(err)
	}
	want := `host  state  silent  latency   free  jobs  processes  memory   cores  power
a/n1  up     -       10.51 ms  0     2     8          1.5 GiB  7.5    1900
a/n2  up     -       -         -     0     -          -        -      -
b/n1  away   1m1s    -         -     1     4          any      any    -
`
	if table.String() != want {
		t.Errorf("got\n%swant\n%s", table.String(), want)
	}
	if err := hostsJSON(&lines, hosts, free); err != nil {
		t.Fatal(err)
	}
	want = `{"host":"a/n1","state":"up","latency_ms":10.512,"free_jobs":0,"jobs":2,"processes":8,"memory":1610612736,"cores":7.5,"power":1900}
{"host":"a/n2","state":"up","jobs":0,"processes":0,"memory":0,"cores":0}
{"host":"b/n1","state":"away","silent_s":61.4,"jobs":1,"processes":4,"memory":0,"cores":0}
`
	if lines.String() != want {
		t.Errorf("got\n%swant\n%s", lines.String(), want)
	}
	table.Reset()
	if err := hostsTable(&table, []*nodepb.Host{{Node: "a/\x1b[2J", State: "up\nc/n1  up", Note: "\x1b]0;t\x07\nd"}}, nil); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(table.String(), "\n"); n != 3 || strings.ContainsAny(table.String(), "\x1b\x07") {
		t.Errorf("text of others is printed as %q", table.String())
	}
	if measured(hosts[:1]) != true || measured(hosts[:2]) != true || measured([]*nodepb.Host{{State: "up", Jobs: 1}}) {
		t.Error("what is measured and what is not is mixed up")
	}
}
