package wire

import (
	"encoding/hex"
	"errors"
	"testing"
)

func TestLinkHeader(t *testing.T) {
	for want, h := range map[string]LinkHeader{
		"010100000010000000000000000003e800000000000000ff": {LinkData, AckSoon, MaxLinkData, 1000, 255, 0},
		"010200000010000000000000000003e800000000000000ff": {LinkData, Padded, MaxLinkData, 1000, 255, 0},
		"02000801000000000000000000000000000000000000000a": {Kind: LinkAck, Ack: 10, Window: 0x801},
		"020000000000000000000000000000000000000000000007": {Kind: LinkAck, Ack: 7},
		"030000000000000000000000000000090000000000000000": {Kind: LinkPing, Offset: 9},
		"0500000000000000ffffffffffffffff0000000000000001": {Kind: LinkFin, Offset: 1<<64 - 1, Ack: 1},
		"070000000000000500000000000000000000000000000000": {Kind: LinkAbort, Length: 5},
	} {
		var b [LinkHeaderLen]byte
		h.Put(b[:])
		if got := hex.EncodeToString(b[:]); got != want {
			t.Errorf("%+v is %s, want %s", h, got, want)
		}
		if back, err := ParseLinkHeader(b[:]); err != nil || back != h {
			t.Errorf("%+v became %+v, %v", h, back, err)
		}
		if _, err := ParseLinkHeader(b[:LinkHeaderLen-1]); !errors.Is(err, ErrMalformed) {
			t.Errorf("a short header: %v", err)
		}
	}
	for _, bad := range []LinkHeader{
		{}, {Kind: 9}, {Kind: LinkData}, {Kind: LinkData, Length: MaxLinkData + 1}, {Kind: LinkData, Length: 2, Offset: 1<<64 - 1},
		{Kind: LinkAck, Length: 1}, {Kind: LinkAck, Offset: 1}, {Kind: LinkAbort, Length: MaxAbortText + 1}, {Kind: LinkUse, Flags: 8}, {Kind: LinkUse, Flags: Padded}, {Kind: LinkAck, Window: MaxLinkWindow + 1},
	} {
		var b [LinkHeaderLen]byte
		bad.Put(b[:])
		if h, err := ParseLinkHeader(b[:]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v was accepted as %+v", bad, h)
		}
	}
}

func FuzzLinkHeader(f *testing.F) {
	var b [LinkHeaderLen]byte
	LinkHeader{LinkData, AckSoon, 5, 6, 7, 8}.Put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseLinkHeader(in)
		if err != nil {
			return
		}
		var out [LinkHeaderLen]byte
		h.Put(out[:])
		if string(out[:]) != string(in[:LinkHeaderLen]) {
			t.Fatalf("% x became % x", in[:LinkHeaderLen], out)
		}
	})
}

func BenchmarkLinkHeader(b *testing.B) {
	var buf [LinkHeaderLen]byte
	for b.Loop() {
		LinkHeader{LinkData, 0, 64 << 10, 1 << 40, 7, 0}.Put(buf[:])
		if _, err := ParseLinkHeader(buf[:]); err != nil {
			b.Fatal(err)
		}
	}
}
