package matrix

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

func TestStrangers(t *testing.T) {
	counted := func(from, to string, packets uint64) wan.Counter {
		return wan.Counter{From: from, To: to, Packets: packets}
	}
	before := []wan.Counter{counted("a-1", "b-2", 5), counted("a-1", "c-2", 7), counted("c-1", "c-2", 1)}
	after := []wan.Counter{
		counted("a-1", "b-2", 500), counted("b-2", "a-1", 400), // their own
		counted("a-1", brokerHost, 9), counted(proxyHost, "b-2", 9), counted("b-2/proxy", "a-1", 9), // broker and proxies
		counted("a-1", "c-2", 8), counted("c-2", "b-2", 2), counted("b-2/proxy", "c-2/proxy", 4), // strangers
		counted("c-1", "c-2", 100), counted("c-1", brokerHost, 100), // others among themselves
	}
	got := strangers(before, after, "a-1", "b-2")
	if want := map[path]uint64{{"a-1", "c-2"}: 1, {"c-2", "b-2"}: 2, {"b-2/proxy", "c-2/proxy"}: 4}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestForgive(t *testing.T) {
	strange := map[path]uint64{{"a-1", "c-2"}: 1, {"d-1", "b-2"}: 8, {"b-2", "d-1"}: 8}
	forgive(strange, map[path]bool{{"d-1", "b-2"}: true, {"a-1", "b-2"}: true})
	if want := map[path]uint64{{"a-1", "c-2"}: 1}; !maps.Equal(strange, want) {
		t.Errorf("%v, want %v", strange, want)
	}
}

func TestPeersOf(t *testing.T) {
	const log = `{"level":"INFO","msg":"ready","peer":"x-1/n1"}
{"level":"INFO","msg":"a tunnel stays for the next time","peer":"c-2/n1","unused":"1m0s"}
{"level":"INFO","msg":"told: a tunnel stays for the next time","peer":"y-1/n1"}
{"level":"INFO","msg":"a tunnel stays for the next time","peer":"b-2/n1","unused":"1m0s"}
{"level":"INFO","msg":"a tunnel stays for the`
	if got := slices.Collect(peersOf(log)); !slices.Equal(got, []string{"c-2", "b-2"}) {
		t.Errorf("got %q", got)
	}
}

func TestTally(t *testing.T) {
	const log = `{"msg":"link joined","job":"j1"}
{"msg":"link ended","job":"j1","rank":0,"sent":100,"received":50}
{"msg":"link ended","job":"j2","rank":0,"sent":0,"received":0}
{"msg":"link ended","job":"j1","rank":1,"sent":50,"received":100}
`
	var bytes uint64
	var ends int
	read, err := tally(log+`{"msg":"link en`, "j1", &bytes, &ends)
	if read != len(log) || err != nil || bytes != 150 || ends != 2 {
		t.Errorf("read %d of %d, %v: %d bytes, %d ends", read, len(log), err, bytes, ends)
	}
	if _, err := tally(log, "j3", &bytes, &ends); err == nil || !strings.Contains(err.Error(), "100 bytes of job j1") {
		t.Errorf("bytes of another job: %v", err)
	}
	if _, err := tally("panic\n", "j1", &bytes, &ends); err == nil {
		t.Error("what is no log passes")
	}
}
