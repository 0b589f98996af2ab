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
		{Envelope{EnvelopeMessage, 0x01020304, 0x7ffffff0, 0x0000_00a0_b0c0_d0e0}, "01000000010203047ffffff0000000a0b0c0d0e0"},
		{Envelope{EnvelopeMessage, 0, 0, 0}, "0100000000000000000000000000000000000000"},
		{Envelope{Kind: EnvelopeGoodbye}, "0200000000000000000000000000000000000000"},
		{Envelope{Kind: EnvelopeConfirm}, "0300000000000000000000000000000000000000"},
	} {
		b := tc.e.Append(nil)
		if got := hex.EncodeToString(b); got != tc.hex || len(b) != EnvelopeLen {
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
		"0000000000000000000000000000000000000000": "envelope kind 0",
		"0400000000000000000000000000000000000000": "envelope kind 4",
		"0100010000000000000000000000000000000000": "want zero",
		"0200000000000001000000000000000000000000": "carries a message",
		"0300000000000000000000000000000000000001": "carries a message",
		"0100000000000000800000000000000000000000": "tag 2147483648",
		"0100000000000000000000000000010000000001": "message of 1099511627777 bytes",
	} {
		b, _ := hex.DecodeString(in)
		if _, err := ParseEnvelope(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", in, err, text)
		}
	}
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add(Envelope{EnvelopeMessage, 1, 2, 3}.Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := ParseEnvelope(in)
		if err == nil && string(e.Append(nil)) != string(in[:EnvelopeLen]) {
			t.Fatalf("%x was read as %+v", in, e)
		}
	})
}
