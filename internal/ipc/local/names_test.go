package local

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// asking runs one request of a client concurrently with the test.
func asking(f func() (string, error)) chan dialResult {
	answer := make(chan dialResult, 1)
	go func() {
		port, err := f()
		answer <- dialResult{port: port, err: err}
	}()
	return answer
}

func TestClientNames(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	c, _ := startClient(t, socket)
	ctx := testContext(t)

	publishing := asking(func() (string, error) { return "", c.Publish(ctx, "x", "p") })
	p := h.next(t).(*wire.LocalPublish)
	if *p != (wire.LocalPublish{Request: p.Request, Name: "x", Port: "p"}) {
		t.Errorf("%+v", p)
	}
	h.send(t, &wire.LocalNamed{Request: p.Request}, nil)
	if got := <-publishing; got.err != nil {
		t.Error(got.err)
	}

	refused := asking(func() (string, error) { return "", c.Publish(ctx, "y", "p") })
	h.send(t, &wire.LocalFailed{Request: h.next(t).(*wire.LocalPublish).Request, Code: wire.CodeNameTaken, Text: "it is rank 5's"}, nil)
	if got := <-refused; !errors.Is(got.err, overlay.ErrNameTaken) || !strings.HasSuffix(got.err.Error(), "it is rank 5's") {
		t.Error(got.err)
	}

	lookup := asking(func() (string, error) { return c.LookupName(ctx, "z", false) })
	l := h.next(t).(*wire.LocalLookup)
	if l.Name != "z" || l.Budget != 0 {
		t.Errorf("%+v", l)
	}
	h.send(t, &wire.LocalNamed{Request: l.Request, Port: "q"}, nil)
	if got := <-lookup; got.err != nil || got.port != "q" {
		t.Errorf("%+v", got)
	}

	// The helper dies during a pending lookup: the next one gets the published name, and the
	// lookup.
	waiting := asking(func() (string, error) { return c.LookupName(ctx, "z", true) })
	if l := h.next(t).(*wire.LocalLookup); l.Budget <= 0 || l.Budget > testWait {
		t.Errorf("%+v", l)
	}
	h.stop()
	h = startHelper(t, socket)
	defer h.stop()
	again, asked := false, false
	for range 2 {
		switch f := h.next(t).(type) {
		case *wire.LocalPublish:
			again = f.Again && f.Name == "x" && f.Port == "p"
			h.send(t, &wire.LocalNamed{Request: f.Request}, nil)
		case *wire.LocalLookup:
			asked = true
			h.send(t, &wire.LocalNamed{Request: f.Request, Port: "r"}, nil)
		}
	}
	if got := <-waiting; !again || !asked || got.err != nil || got.port != "r" {
		t.Errorf("published again %v, asked again %v, %+v", again, asked, got)
	}

	taking := asking(func() (string, error) { return "", c.Unpublish(ctx, "x") })
	h.send(t, &wire.LocalNamed{Request: h.next(t).(*wire.LocalUnpublish).Request}, nil)
	if got := <-taking; got.err != nil {
		t.Error(got.err)
	}
	h.stop()
	h = startHelper(t, socket)
	defer h.stop()
	select {
	case <-h.hellos:
	case <-time.After(testWait):
		t.Fatal("the client did not come again")
	}
	last := asking(func() (string, error) { return c.LookupName(ctx, "x", false) })
	f, ok := h.next(t).(*wire.LocalLookup) // and nothing before it
	if !ok {
		t.Fatal("it was published again after it was taken back")
	}
	h.send(t, &wire.LocalFailed{Request: f.Request, Code: wire.CodeUnknownName, Text: "no"}, nil)
	if got := <-last; !errors.Is(got.err, overlay.ErrUnknownName) {
		t.Error(got.err)
	}
}

// A helper of an older version would end the connection at the first unknown frame.
func TestNamesAndAnOlderHelper(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	h.mu.Lock()
	h.features = 0
	h.mu.Unlock()
	defer h.stop()
	c, _ := startClient(t, socket)
	if err := c.Publish(testContext(t), "x", "p"); !errors.Is(err, wire.ErrVersion) || !strings.Contains(err.Error(), "of an older version") {
		t.Error(err)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	c, ctx := NewClient(testConfig(t, "/none")), testContext(t)
	for what, err := range map[string]error{
		"empty":      c.Publish(ctx, "", "p"),
		"long":       c.Publish(ctx, strings.Repeat("x", 129), "p"),
		"no text":    c.Publish(ctx, "a\x00b", "p"),
		"no port":    c.Publish(ctx, "x", ""),
		"long port":  c.Publish(ctx, "x", strings.Repeat("x", 1025)),
		"unpublish":  c.Unpublish(ctx, "a\nb"),
		"looked for": second(c.LookupName(ctx, "\xff", true)),
	} {
		if !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d := new(Directory)
	for _, err := range []error{d.Publish(ctx, "x", "p"), d.Unpublish(ctx, "x"), second(d.LookupName(context.Background(), "x", true))} {
		if !errors.Is(err, overlay.ErrUnreachable) || !strings.Contains(err.Error(), "need a helper") {
			t.Error(err)
		}
	}
}

func second(_ string, err error) error { return err }
