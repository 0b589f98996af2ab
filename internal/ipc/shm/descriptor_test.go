package shm

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

var someOffer = Descriptor{
	PID: 4711, FD: 7,
	Boot:     [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	PIDSpace: 4026531836,
	Nonce:    [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
	Size:     600 << 10,
	Proof:    0xc000123450,
	CPUs:     CPUs{5, 15: 0xb0},
}

var someOfferHex = "01" + "00001267" + "00000007" + "0102030405060708090a0b0c0d0e0f10" +
	"00000000effffffc" + "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf" + "0000000000096000" + "000000c000123450" +
	"0000000000000005" + strings.Repeat("00", 14*8) + "00000000000000b0"

func TestOfferEncoding(t *testing.T) {
	b := someOffer.Append([]byte("x"))[1:]
	if got := hex.EncodeToString(b); got != someOfferHex {
		t.Errorf("encoded as\n%s, want\n%s", got, someOfferHex)
	}
	for _, o := range []Descriptor{someOffer, {FD: -1}, {PID: -1, FD: -1, Size: ^uint64(0)}} {
		got, err := ParseDescriptor(o.Append(nil))
		if err != nil || got != o {
			t.Errorf("%+v became %+v, %v", o, got, err)
		}
	}
	for n := range b {
		if _, err := ParseDescriptor(b[:n]); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(b))
		}
	}
	if _, err := ParseDescriptor(append(b, 0)); err == nil {
		t.Error("a byte too many was taken")
	}
	b[0]++
	if _, err := ParseDescriptor(b); err == nil {
		t.Error("another version was taken")
	}
}

func FuzzParseOffer(f *testing.F) {
	f.Add(someOffer.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseDescriptor(b)
		if err == nil && !bytes.Equal(o.Append(nil), b) {
			t.Errorf("%x is parsed as %+v", b, o)
		}
	})
}
