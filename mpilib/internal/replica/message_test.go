package replica

import (
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var wide = Layout{Ranks: 50, Replicas: 2}

type encoded struct {
	message Message
	hex     string
}

var golden = []encoded{
	{Message{Kind: Ack, Acks: []AckEntry{{Context: 6, Tag: 7, Count: 2, Digest: 0xfedcba9876543210}, {Context: 7, Tag: -1, Count: 1, Digest: 1}}},
		"01 00000002 0c 0e 02 fedcba9876543210 02 0f 01 0000000000000001"},
	{Message{Kind: Have}, "02 00000000"},
	{Message{Kind: Query, Failed: []int{3, 99}}, "03 00000002 00000003 00000063"},
	{Message{Kind: Flush, Count: 1 << 40}, "04 0000010000000000"},
	{Message{Kind: Decisions, Count: 5, Entries: []Entry{
		{Point: 6, Kind: KindReceive, Sent: 0xabc, Outcome: Outcome{Source: Cancelled, Tag: -1}},
		{Point: 7, Kind: 4, Sent: 1, Outcome: Outcome{Data: "now"}},
	}},
		"05 0000000000000005 00000002 0000000000000006 00 0000000000000abc fffffffe ffffffff 00000000" +
			"0000000000000007 04 0000000000000001 00000000 00000000 00000003 6e6f77"},
	{Message{Kind: Lead, Failed: []int{0}, Count: 1, Entries: []Entry{{Point: 2, Outcome: Outcome{Source: 3, Tag: 9}}}},
		"06 00000001 00000000 0000000000000001 00000001 0000000000000002 00 0000000000000000 00000003 00000009 00000000"},
	{Message{Kind: Committed, Leader: 1, Count: 7, Used: 6}, "07 00000001 0000000000000007 0000000000000006"},
	{Message{Kind: Failures, Failed: []int{98}}, "08 00000001 00000062"},
	{Message{Kind: Done}, "09"},
}

func bytesOf(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		want := bytesOf(t, g.hex)
		if got := g.message.Append([]byte("x")); string(got) != "x"+string(want) {
			t.Errorf("%v: %x, want x and %x", g.message, got, want)
		}
		m, err := Parse(want, wide)
		if err != nil || !reflect.DeepEqual(m, g.message) {
			t.Errorf("Parse(%s) = %+v, %v, want %+v", g.hex, m, err, g.message)
		}
		for n := range want {
			if m, err := Parse(want[:n], wide); err == nil {
				t.Errorf("%d bytes of %v are parsed to %v", n, g.message, m)
			}
		}
		if _, err := Parse(append(slices.Clone(want), 0), wide); err == nil {
			t.Errorf("%v and a byte is parsed", g.message)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"kind 0":               "00 00000000",
		"kind 9":               "09 00000000",
		"too many acks":        "01 ffffffff 0c 0e 02 fedcba9876543210",
		"an ack of nothing":    "01 00000001 0c 0e 00 fedcba9876543210",
		"a leading zero":       "01 00000001 8c00 0e 02 fedcba9876543210",
		"context below 0":      "01 00000001 01 0e 02 fedcba9876543210",
		"context too large":    "01 00000001 8080808020 0e 02 fedcba9876543210",
		"tag too large":        "01 00000001 0c 8080808010 02 fedcba9876543210",
		"number too large":     "01 00000001 0c 0e 80808080808080808002 fedcba9876543210",
		"too many in an ack":   "01 00000001 0c 0e 8080808010 fedcba9876543210",
		"process out of range": "03 00000001 00000064",
		"processes twice":      "03 00000002 00000001 00000001",
		"processes falling":    "03 00000002 00000002 00000001",
		"too large a set":      "03 ffffffff 00000001",
		"replica out of range": "07 00000002 0000000000000007 0000000000000006",
		"point 0":              "05 0000000000000005 00000001 0000000000000000 00 0000000000000000 00000000 00000000 00000000",
		"data too large":       "05 0000000000000005 00000001 0000000000000001 00 0000000000000000 00000000 00000000 00010001" + strings.Repeat("00", MaxData+1),
		"data too short":       "05 0000000000000005 00000001 0000000000000001 00 0000000000000000 00000000 00000000 ffffffff 00",
	} {
		if m, err := Parse(bytesOf(t, s), wide); err == nil {
			t.Errorf("%s: parsed to %+v", name, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, g := range slices.Concat(golden, goldenOfRounds) {
		f.Add(bytesOf(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b, joined)
		if err != nil {
			return
		}
		if again := m.Append(nil); string(again) != string(b) {
			t.Fatalf("%x is parsed to %+v, which is %x", b, m, again)
		}
	})
}
