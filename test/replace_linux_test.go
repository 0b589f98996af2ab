package test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
)

// A proxy is replaced by a new process of it while links go through it and new
// ones are made all the time: nobody is refused, and no link breaks.
func TestProxyIsReplacedUnderLoad(t *testing.T) {
	w := newWorld(t, siteClosed+siteShut, grid.Config{})
	flows := []*flow{w.flow(w.linked("closed/n1", "shut/n1")), w.flow(w.linked("shut/n1", "closed/n2"))}
	p := w.Daemon("proxy p1")
	old := p.PID()
	over := make(chan error, 1)
	go func() { over <- p.HandOver(w.ctx) }()
	for replaced, more := false, 5; more > 0; {
		w.linked("closed/n2", "shut/n1").end(t)
		select {
		case err := <-over:
			if err != nil {
				t.Fatal(err)
			}
			replaced = true
		default:
		}
		if replaced {
			more--
		}
	}
	w.flowing("after the hand-over", flows)
	if !p.Running() || p.PID() != old {
		t.Error("the old process has ended while links go through it")
	}
	for line := range strings.Lines(p.Log()) {
		var e struct{ Msg, Cause string }
		json.Unmarshal([]byte(line), &e)
		if e.Msg == "refused" || e.Msg == "link ended" && e.Cause != "both ends closed" {
			t.Errorf("the proxy wrote %s", line)
		}
	}
}

// A proxy that drains is left by its links, which go on by another, and ends.
func TestDrainedProxyIsLeft(t *testing.T) {
	w := newWorld(t, siteClosed+siteShut, grid.Config{Proxies: []string{"public/p1", "public/p2"}})
	j := w.linked("closed/n1", "shut/n1")
	flows := []*flow{w.flow(j)}
	first := j.near.Path.Proxy
	if err := w.Daemon("proxy " + first).Drain(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.flowing("after its proxy has drained", flows)
	again := w.linked("closed/n2", "shut/n1")
	if got := again.near.Path.Proxy; got == first || got == "" {
		t.Errorf("a new link goes through %q, and %s has drained", got, first)
	}
	again.end(t)
}
