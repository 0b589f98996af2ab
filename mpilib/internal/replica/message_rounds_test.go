package replica

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// joined is a layout of a job with spare numbers.
var joined = Layout{Ranks: 50, Replicas: 2, Spares: 3}

var goldenOfRounds = []encoded{
	{Message{Kind: Flush, Epoch: 2, Count: 1}, "84 00000002 0000000000000001"},
	{Message{Kind: Join, Seat: Seat{Rank: 3, Replica: 1}}, "0a 00000003 00000001"},
	{Message{Kind: Welcome, Epoch: 1, Moves: []Move{{Seat: 99, Process: 100}}}, "8b 00000001 00000001 00000063 00000064"},
	{Message{Kind: Ready}, "0c"},
	{Message{Kind: Agree, Data: []byte("ab")}, "0d 00000002 6162"},
	{Message{Kind: State, Epoch: 7, Count: 5, OK: true, Moves: []Move{{3, 102}, {4, 101}}, Data: []byte("x")},
		"8e 00000007 0000000000000005 01 00000002 00000003 00000066 00000004 00000065 00000001 78"},
	{Message{Kind: Loaded, Count: 5, OK: true}, "0f 0000000000000005 01"},
	{Message{Kind: Loaded, Count: 5}, "0f 0000000000000005 00"},
	{Message{Kind: Admit, Epoch: 8, Count: 5, Failed: []int{4}, Moves: []Move{{3, 102}}},
		"90 00000008 0000000000000005 00000001 00000004 00000001 00000003 00000066"},
	{Message{Kind: Begin, Count: 5}, "11 0000000000000005"},
	{Message{Kind: Total, Count: 5, Used: 6}, "12 0000000000000005 0000000000000006"},
}

func TestGoldenOfRounds(t *testing.T) {
	for _, g := range goldenOfRounds {
		want := bytesOf(t, g.hex)
		if got := g.message.Append([]byte("x")); string(got) != "x"+string(want) {
			t.Errorf("%v: %x, want x and %x", g.message, got, want)
		}
		m, err := Parse(want, joined)
		if err != nil || !reflect.DeepEqual(m, g.message) {
			t.Errorf("Parse(%s) = %+v, %v, want %+v", g.hex, m, err, g.message)
		}
		for n := range want {
			if m, err := Parse(want[:n], joined); err == nil {
				t.Errorf("%d bytes of %v are parsed to %v", n, g.message, m)
			}
		}
		if _, err := Parse(append(slices.Clone(want), 0), joined); err == nil {
			t.Errorf("%v and a byte is parsed", g.message)
		}
	}
}

func TestParseRefusesOfRounds(t *testing.T) {
	for name, s := range map[string]string{
		"epoch 0":                  "84 00000000 0000000000000001",
		"kind 0 with an epoch":     "80 00000001",
		"a later kind":             "13 0000000000000005",
		"rank out of range":        "0a 00000032 00000001",
		"replica out of range":     "0a 00000003 00000002",
		"a seat out of range":      "0b 00000001 00000064 00000064",
		"a process that began":     "0b 00000001 00000063 00000063",
		"a process out of range":   "0b 00000001 00000063 00000067",
		"a process in two seats":   "0b 00000002 00000003 00000064 00000004 00000064",
		"two processes in a seat":  "0b 00000002 00000003 00000064 00000003 00000065",
		"too many moves":           "0b ffffffff 00000003 00000064",
		"neither yes nor no":       "0f 0000000000000005 02",
		"data too short":           "0d 00000003 6162",
		"a state, neither yes nor": "0e 0000000000000005 02 00000000 00000000",
	} {
		if m, err := Parse(bytesOf(t, strings.ReplaceAll(s, " ", "")), joined); err == nil {
			t.Errorf("%s: parsed to %+v", name, m)
		}
	}
}
