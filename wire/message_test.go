package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestEnvelope(t *testing.T) {
	for _, tc := range []struct {
		e   Envelope
		hex string
	}{
		{Envelope{Kind: EnvelopeEager, Context: 0x01020304, Tag: 0x7ffffff0, Length: 0x0000_00a0_b0c0_d0e0}, "01000000 01020304 7ffffff0 00000000 000000a0b0c0d0e0"},
		{Envelope{Kind: EnvelopeEager, Flags: EnvelopeSynchronous, ID: 0xa1b2c3d4}, "01010000 00000000 00000000 a1b2c3d4 0000000000000000"},
		{Envelope{Kind: EnvelopeGoodbye}, "02000000 00000000 00000000 00000000 0000000000000000"},
		{Envelope{Kind: EnvelopeConfirm}, "03000000 00000000 00000000 00000000 0000000000000000"},
		{Envelope{Kind: EnvelopeRTS, Context: 4, Tag: 5, ID: 6, Length: 7}, "04000000 00000004 00000005 00000006 0000000000000007"},
		{Envelope{Kind: EnvelopeCTS, ID: 6, Length: 7}, "05000000 00000000 00000000 00000006 0000000000000007"},
		{Envelope{Kind: EnvelopeCTS, Flags: EnvelopeLate, ID: 6, Length: 7}, "05040000 00000000 00000000 00000006 0000000000000007"},
		{Envelope{Kind: EnvelopeData, Flags: EnvelopeHead, ID: 6, Length: 3}, "06020000 00000000 00000000 00000006 0000000000000003"},
		{Envelope{Kind: EnvelopeTaken, ID: 6}, "07000000 00000000 00000000 00000006 0000000000000000"},
		{Envelope{Kind: EnvelopeCredit, Length: 65536}, "08000000 00000000 00000000 00000000 0000000000010000"},
		{Envelope{Kind: EnvelopeWithdraw, ID: 6}, "09000000 00000000 00000000 00000006 0000000000000000"},
		{Envelope{Kind: EnvelopeWithdrawn, ID: 6}, "0a000000 00000000 00000000 00000006 0000000000000000"},
		{Envelope{Kind: EnvelopeShare, Length: 65}, "0b000000 00000000 00000000 00000000 0000000000000041"},
		{Envelope{Kind: EnvelopeSwitch}, "0c000000 00000000 00000000 00000000 0000000000000000"},
		{Envelope{Kind: EnvelopeBell}, "0d000000 00000000 00000000 00000000 0000000000000000"},
		{Envelope{Kind: EnvelopeFailed, ID: 6}, "0e000000 00000000 00000000 00000006 0000000000000000"},
		{Envelope{Kind: EnvelopeRevoked, Context: 8, Tag: 4}, "0f000000 00000008 00000004 00000000 0000000000000000"},
		{Envelope{Kind: EnvelopeNote, Context: 8, Length: 7}, "10000000 00000008 00000000 00000000 0000000000000007"},
		{Envelope{Kind: EnvelopeCopying, ID: 6}, "11000000 00000000 00000000 00000006 0000000000000000"},
		{Envelope{Kind: EnvelopeReplica, Length: 7}, "12000000 00000000 00000000 00000000 0000000000000007"},
		{Envelope{Kind: EnvelopeSlot, Context: 8, Tag: 4, Length: 7}, "13000000 00000008 00000004 00000000 0000000000000007"},
		{Envelope{Kind: EnvelopeValue, Flags: EnvelopeLast, Context: 8, Tag: 4, ID: 5, Length: 7}, "14080000 00000008 00000004 00000005 0000000000000007"},
	} {
		b := tc.e.Append(nil)
		if got := hex.EncodeToString(b); got != strings.ReplaceAll(tc.hex, " ", "") || len(b) != EnvelopeLen {
			t.Errorf("%+v is %s, want %s", tc.e, got, tc.hex)
		}
		if back, err := ParseEnvelope(append(b, 9)); err != nil || back != tc.e {
			t.Errorf("%s: %+v, %v", tc.hex, back, err)
		}
		for n := range b {
			if _, err := ParseEnvelope(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("the first %d bytes gave %v", n, err)
			}
		}
	}
	for in, text := range map[string]string{
		"00000000 00000000 00000000 00000000 0000000000000000": "envelope kind 0",
		"15000000 00000000 00000000 00000000 0000000000000000": "envelope kind 21",
		"13000000 00000000 00000000 00000001 0000000000000000": "says more than that",
		"14010000 00000000 00000000 00000000 0000000000000001": "with flags 0x1",
		"0e000000 00000001 00000000 00000000 0000000000000000": "says more than that",
		"0f000000 00000000 00000001 00000000 0000000000000001": "says more than that",
		"01000100 00000000 00000000 00000000 0000000000000000": "want zero",
		"01020000 00000000 00000000 00000000 0000000000000000": "with flags 0x2",
		"04010000 00000000 00000000 00000000 0000000000000000": "with flags 0x1",
		"01000000 00000000 00000000 00000001 0000000000000000": "says more than that",
		"02000000 00000001 00000000 00000000 0000000000000000": "says more than that",
		"03000000 00000000 00000000 00000000 0000000000000001": "says more than that",
		"0c000000 00000000 00000000 00000000 0000000000000001": "says more than that",
		"0d000000 00000000 00000000 00000001 0000000000000000": "says more than that",
		"05000000 00000000 00000001 00000000 0000000000000001": "says more than that",
		"07000000 00000000 00000000 00000001 0000000000000001": "says more than that",
		"08000000 00000000 00000000 00000001 0000000000000001": "says more than that",
		"01000000 00000000 80000000 00000000 0000000000000000": "tag 2147483648",
		"01000000 00000000 00000000 00000000 0000010000000001": "message of 1099511627777 bytes",
	} {
		b, _ := hex.DecodeString(strings.ReplaceAll(in, " ", ""))
		if _, err := ParseEnvelope(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", in, err, text)
		}
	}
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add(Envelope{Kind: EnvelopeRTS, Context: 1, Tag: 2, ID: 3, Length: 4}.Append(nil))
	f.Add(Envelope{Kind: EnvelopeEager, Context: 1, Tag: 2, Length: 4}.Append(nil))
	f.Add(Envelope{Kind: EnvelopeEager, Flags: EnvelopeSynchronous, Context: 1, Tag: 2, ID: 3, Length: 4}.Append(nil))
	for _, in := range []Envelope{
		{Kind: EnvelopeEager, ID: 1}, {Kind: EnvelopeEager, Flags: EnvelopeHead}, {Kind: EnvelopeEager, Tag: 1 << 31}, {Kind: EnvelopeEager, Length: MaxMessage + 1},
	} {
		f.Add(in.Append(nil))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := ParseEnvelope(in)
		if err == nil && string(e.Append(nil)) != string(in[:EnvelopeLen]) {
			t.Fatalf("%x was read as %+v", in, e)
		}
		if len(in) < EnvelopeLen {
			return
		}
		context, tag, length, ok := PlainMessage((*[EnvelopeLen]byte)(in))
		plain := err == nil && e.Kind == EnvelopeEager && e.Flags == 0
		if ok != plain || ok && (Envelope{Kind: EnvelopeEager, Context: context, Tag: tag, Length: length}) != e {
			t.Fatalf("%x is a plain message: %v, in context %d with tag %d, of %d bytes; read as %+v, %v", in, ok, context, tag, length, e, err)
		}
	})
}
