package agree

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

var golden = []struct {
	message Message
	hex     string
}{
	{Message{Kind: Contribute, Seq: 1, Ballot: Ballot{0, 0}, Value: Value{Flags: 5, Max: 6, Acked: SetOf(2)}},
		"01 0000000000000001 00000000 00000000 0000000000000005 0000000000000006 00000000 00000001 00000002"},
	{Message{Kind: Gather, Seq: 2, Ballot: Ballot{1, 3}, Excluded: SetOf(0, 70)},
		"02 0000000000000002 00000001 00000003 00000002 00000000 00000046"},
	{Message{Kind: Propose, Seq: 1 << 40, Ballot: Ballot{1, 1}, Excluded: SetOf(0), Value: Value{Flags: 1 << 63, Failed: SetOf(0)}},
		"03 0000010000000000 00000001 00000001 00000001 00000000 8000000000000000 0000000000000000 00000001 00000000 00000000"},
	{Message{Kind: Accept, Seq: 7, Ballot: Ballot{99, 2}}, "04 0000000000000007 00000063 00000002"},
	{Message{Kind: Commit, Seq: 7, Ballot: Ballot{0, 2}, Excluded: SetOf(9)},
		"05 0000000000000007 00000000 00000002 00000001 00000009 0000000000000000 0000000000000000 00000000 00000000"},
	{Message{Kind: Ask, Seq: 8, Excluded: SetOf(1, 2, 3)}, "06 0000000000000008 00000003 00000001 00000002 00000003"},
	{Message{Kind: Answer, Seq: 8, Value: Value{Max: 1}}, "07 0000000000000008 0000000000000000 0000000000000001 00000000 00000000"},
}

func bytesOf(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(string(slices.DeleteFunc([]byte(s), func(c byte) bool { return c == ' ' })))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func same(a, b Message) bool {
	return a.Kind == b.Kind && a.Seq == b.Seq && a.Ballot == b.Ballot && a.Excluded.Equal(b.Excluded) && equal(a.Value, b.Value)
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		want := bytesOf(t, g.hex)
		got := g.message.Append([]byte("x"))
		if string(got) != "x"+string(want) {
			t.Errorf("%v: %x, want x and %x", g.message, got, want)
		}
		m, err := Parse(want, 100)
		if err != nil || !same(m, g.message) {
			t.Errorf("Parse(%s) = %v, %v, want %v", g.hex, m, err, g.message)
		}
		for n := range want {
			if m, err := Parse(want[:n], 100); err == nil {
				t.Errorf("%d bytes of %v are parsed to %v", n, g.message, m)
			}
		}
		if _, err := Parse(append(slices.Clone(want), 0), 100); err == nil {
			t.Errorf("%v and a byte is parsed", g.message)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"kind 0":              "00 0000000000000001",
		"kind 8":              "08 0000000000000001",
		"leader out of range": "04 0000000000000007 00000064 00000002",
		"rank out of range":   "06 0000000000000008 00000001 00000064",
		"ranks twice":         "06 0000000000000008 00000002 00000001 00000001",
		"ranks falling":       "06 0000000000000008 00000002 00000002 00000001",
		"a set too long":      "06 0000000000000008 ffffffff 00000002 00000001",
	} {
		if m, err := Parse(bytesOf(t, s), 100); err == nil {
			t.Errorf("%s: parsed to %v", name, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(bytesOf(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b, 100)
		if err != nil {
			return
		}
		if again := m.Append(nil); string(again) != string(b) {
			t.Fatalf("%x is parsed to %v, which is %x", b, m, again)
		}
	})
}

// A member takes whatever its peers send without panicking, keeps little of it, and does not answer
// itself.
func FuzzReceive(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 5)
	}
	f.Fuzz(func(t *testing.T, seed uint64, size int) {
		size = 2 + max(size, -size)&31
		r := rand.New(rand.NewPCG(seed, 3))
		set := func() (s Set) {
			for range r.IntN(3) {
				s = s.Union(SetOf(r.IntN(size)))
			}
			return s
		}
		m := New(r.IntN(size), size)
		started := uint64(0)
		for range 300 {
			var out Out
			var err error
			if r.IntN(10) == 0 {
				started++
				_, out = m.Start(Value{})
			} else {
				msg := Message{
					Kind: Kind(r.IntN(9)), Seq: m.last.Seq + uint64(r.IntN(4)), Ballot: Ballot{r.IntN(size), r.IntN(3)},
					Excluded: set(), Value: Value{Flags: r.Uint64(), Max: r.Uint64(), Failed: set(), Acked: set()},
				}
				if r.IntN(4) > 0 {
					msg.Ballot.Leader = msg.Excluded.lowestOutside()
				}
				if r.IntN(20) > 0 { // otherwise all but one are soon dead
					msg.Excluded, msg.Value.Failed = m.failed, m.last.Value.Failed
				}
				out, err = m.Receive(r.IntN(size), msg)
			}
			if err != nil && (len(out.Send) > 0 || len(out.Decided) > 0) {
				t.Fatalf("%v, and to do: %v", err, out)
			}
			for _, e := range out.Send {
				if e.To == m.rank || e.To < 0 || e.To >= size {
					t.Fatalf("sent to %d: %v", e.To, e.Message)
				}
			}
			if len(m.early) > 2*size || m.last.Seq > started {
				t.Fatalf("%d early, %d decided of %d", len(m.early), m.last.Seq, started)
			}
		}
	})
}

// Messages that a peer must not send are rejected and change nothing.
func TestRefusals(t *testing.T) {
	m := New(1, 4)
	for name, c := range map[string]struct {
		from    int
		message Message
	}{
		"from itself":             {1, Message{Kind: Ask, Seq: 1}},
		"from nobody":             {4, Message{Kind: Ask, Seq: 1}},
		"agreement 0":             {0, Message{Kind: Ask}},
		"agreement 3":             {0, Message{Kind: Ask, Seq: 3}},
		"kind 0":                  {0, Message{Seq: 1}},
		"kind 8":                  {0, Message{Kind: 8, Seq: 1}},
		"proposal without it":     {0, Message{Kind: Propose, Seq: 1}},
		"decision without it":     {0, Message{Kind: Commit, Seq: 1}},
		"acceptance without it":   {0, Message{Kind: Accept, Seq: 1}},
		"answer without it":       {0, Message{Kind: Answer, Seq: 2}},
		"not from the parent":     {2, Message{Kind: Gather, Seq: 1, Ballot: Ballot{0, 1}}},
		"leader is excluded":      {0, Message{Kind: Gather, Seq: 1, Ballot: Ballot{0, 1}, Excluded: SetOf(0)}},
		"leader is not the first": {2, Message{Kind: Gather, Seq: 1, Ballot: Ballot{2, 1}}},
	} {
		if out, err := m.Receive(c.from, c.message); err == nil || errors.Is(err, ErrExpelled) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	for _, msg := range []Message{
		{Kind: Gather, Seq: 1, Ballot: Ballot{0, 1}, Excluded: SetOf(1)},
		{Kind: Contribute, Seq: 1, Value: Value{Failed: SetOf(1)}},
		{Kind: Ask, Seq: 1, Excluded: SetOf(0, 1)},
	} {
		if _, err := m.Receive(0, msg); !errors.Is(err, ErrExpelled) {
			t.Errorf("%v: %v, want ErrExpelled", msg, err)
		}
	}
	if !m.Failed().Empty() || m.Last().Seq != 0 {
		t.Errorf("failed %v, decided %v", m.Failed(), m.Last())
	}
}
