package matrix

import (
	"maps"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
)

func TestStrangers(t *testing.T) {
	path := func(from, to string, packets uint64) wan.Counter {
		return wan.Counter{From: from, To: to, Packets: packets}
	}
	before := []wan.Counter{path("a-1", "b-2", 5), path("a-1", "c-2", 7), path("c-1", "c-2", 1)}
	after := []wan.Counter{
		path("a-1", "b-2", 500), path("b-2", "a-1", 400), // their own
		path("a-1", brokerHost, 9), path(proxyHost, "b-2", 9), path("b-2/proxy", "a-1", 9), // those who help
		path("a-1", "c-2", 8), path("c-2", "b-2", 2), path("b-2/proxy", "c-2/proxy", 4), // strangers
		path("c-1", "c-2", 100), path("c-1", brokerHost, 100), // others among themselves
		path("d-1", "b-2", 8), path("b-2", "d-1", 8), // a tunnel of before
	}
	got := strangers(before, after, "a-1", "b-2", map[[2]string]bool{{"d-1", "b-2"}: true})
	if want := map[string]uint64{"a-1 -> c-2": 1, "c-2 -> b-2": 2, "b-2/proxy -> c-2/proxy": 4}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
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
