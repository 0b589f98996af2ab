package traverse

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The same SYN twice is one connection request; a different SYN is another.
func TestDuplicatesAreSuppressed(t *testing.T) {
	e := &Engine{flows: make(map[endpoints]*flow)}
	now := time.Unix(1000, 0)
	join := func(seq uint32) (*Injected, bool) {
		syn := linuxSYN(t)
		syn.Seq = seq
		c, err := newConversation(Trav, syn, client, server)
		if err != nil {
			t.Fatal(err)
		}
		i, fresh, err := e.join(now, c)
		if err != nil {
			t.Fatal(err)
		}
		return i, fresh
	}
	first, fresh := join(1)
	if again, twice := join(1); !fresh || twice || again != first {
		t.Error("a duplicate was taken for a new one")
	}
	second, fresh := join(2)
	if !fresh || second == first {
		t.Error("a new connect was taken for a duplicate")
	}
	first.Close()
	if len(e.flows) != 1 {
		t.Error("closing the old one removed the new one")
	}
	now = now.Add(flowLife + time.Second)
	if _, fresh := join(2); !fresh {
		t.Error("the memory of a connection does not end")
	}
}

// The table of connections is bounded, and the places of old ones are reused.
func TestFlowsAreBounded(t *testing.T) {
	e := &Engine{flows: make(map[endpoints]*flow)}
	local := netip.MustParseAddr("10.0.0.1")
	for i := range maxFlows {
		if _, err := e.Watch(netip.AddrPortFrom(local, uint16(i+1)), client); err != nil {
			t.Fatal(err)
		}
	}
	more := netip.AddrPortFrom(local, maxFlows+1)
	if _, err := e.Watch(more, client); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	for _, f := range e.flows {
		f.expires = time.Now().Add(-time.Second)
		break
	}
	if _, err := e.Watch(more, client); err != nil {
		t.Errorf("after one has expired: %v", err)
	}
}
