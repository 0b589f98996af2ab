package matrix

import (
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
	if n := strangers(before, after, "a-1", "b-2", map[[2]string]bool{{"d-1", "b-2"}: true}); n != 1+2+4 {
		t.Errorf("%d packets, want 7", n)
	}
}
