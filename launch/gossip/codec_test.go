package gossip

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func sample() Message {
	a, b := overlay.NodeID{Site: "sitea", Name: "a1"}, overlay.NodeID{Site: "siteb", Name: "b1"}
	return Message{From: a, To: b, Kind: Gossip, Round: 0x0102, Entries: []Entry{
		{ID: a, Incarnation: 7, Heartbeat: 9},
		{ID: b, Incarnation: 8, Heartbeat: 3, Age: 1500 * time.Millisecond, Left: true},
	}}
}

// golden is the encoding of sample. A change of it is a change of the protocol.
const golden = "01010000000000000102" + "0573697465610261310573697465620262310002" +
	"057369746561026131" + "000000000000000700000000000000090000000000000000" + "00" +
	"057369746562026231" + "000000000000000800000000000000030000000059682f00" + "01"

func TestGoldenMessage(t *testing.T) {
	m := sample()
	if got := hex.EncodeToString(m.Append(nil)); got != golden {
		t.Errorf("the encoding changed:\n got %s\nwant %s", got, golden)
	}
	for _, m := range []Message{m, {From: m.To, To: m.From, Kind: Pong}} {
		back, err := Decode(m.Append(nil))
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%+v, %v; want %+v", back, err, m)
		}
	}
}

func TestEveryShorterMessageIsRefused(t *testing.T) {
	m := sample()
	whole := m.Append(nil)
	for n := range whole {
		if _, err := Decode(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := Decode(append(whole, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestBadMessages(t *testing.T) {
	for _, tc := range []struct{ old, new, text string }{
		{"0101", "0201", "version 2; this host speaks 1"},
		{"0101", "0104", "kind 4"},
		{"0573697465", "0553697465", `site name "Sitea"`},
		{"0002057369", "ffff057369", "65535 entries; at most 4097"},
		{"0002057369", "0003057369", "3 entries in "},
		{"0000000059682f00", "ff00000059682f00", "ns old"},
		{"2f0001", "2f0002", "flags 0x02"},
	} {
		b, err := hex.DecodeString(strings.Replace(golden, tc.old, tc.new, 1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Decode(b)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s -> %s: %v, want %q", tc.old, tc.new, err, tc.text)
		}
	}
}

// The longest possible message fits.
func TestLongestMessage(t *testing.T) {
	id := func(i int) overlay.NodeID {
		name := fmt.Sprintf("%0*d", overlay.MaxNameLen, i)
		return overlay.NodeID{Site: overlay.SiteID(name), Name: name}
	}
	m := Message{From: id(0), To: id(1), Kind: Gossip}
	for i := range MaxMembers + 1 {
		m.Entries = append(m.Entries, Entry{ID: id(i), Incarnation: 1, Age: maxAge + 1})
	}
	b := m.Append(nil)
	back, err := Decode(b)
	if err != nil || len(b) != MaxEncoded || len(back.Entries) != MaxMembers+1 || back.Entries[7].Age != maxAge {
		t.Errorf("%d bytes, want %d; %d entries, %v", len(b), MaxEncoded, len(back.Entries), err)
	}
	if MaxEncoded > 1<<20 {
		t.Errorf("%d bytes are more than a call takes", MaxEncoded)
	}
}

func FuzzDecode(f *testing.F) {
	b, _ := hex.DecodeString(golden)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		if again := m.Append(nil); string(again) != string(b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}
