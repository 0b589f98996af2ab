package punch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func sample() Description {
	d := Description{Controlling: true, Ufrag: "abcd", Password: "0123456789+/ABCDEFGHIJ"}
	for i := range d.Fingerprint {
		d.Fingerprint[i] = byte(i)
	}
	d.Candidates = []Candidate{
		{Host, netip.MustParseAddrPort("10.1.0.11:5000")},
		{Mapped, netip.MustParseAddrPort("[2001:db8::1]:65535")},
	}
	return d
}

// The encoding, and that every shorter prefix is rejected.
func TestDescription(t *testing.T) {
	const golden = "0101" + "0461626364" + "16303132333435363738392b2f4142434445464748494a" +
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" +
		"02" + "0104" + "0a01000b" + "1388" + "0206" + "20010db8000000000000000000000001" + "ffff"
	b := sample().Append(nil)
	if got := hex.EncodeToString(b); got != golden {
		t.Errorf("encoded as\n%s, want\n%s", got, golden)
	}
	d, err := ParseDescription(b)
	if err != nil || !reflect.DeepEqual(d, sample()) {
		t.Errorf("parsed as %+v, %v", d, err)
	}
	for n := range b {
		if _, err := ParseDescription(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

func TestDescriptionRefused(t *testing.T) {
	for _, c := range []struct {
		say    string
		change func(*Description)
		bytes  func([]byte) []byte
	}{
		{"version 2", nil, func(b []byte) []byte { b[0] = 2; return b }},
		{"unknown flags", nil, func(b []byte) []byte { b[1] = 3; return b }},
		{"follow its end", nil, func(b []byte) []byte { return append(b, 0) }},
		{"at most 512", nil, func(b []byte) []byte { return append(b, make([]byte, 512)...) }},
		{"credentials", func(d *Description) { d.Ufrag = "abc" }, nil},
		{"credentials", func(d *Description) { d.Ufrag = "ab:d" }, nil},
		{"credentials", func(d *Description) { d.Ufrag = strings.Repeat("a", 33) }, nil},
		{"credentials", func(d *Description) { d.Password = "short" }, nil},
		{"credentials", func(d *Description) { d.Password = strings.Repeat("a", 65) }, nil},
		{"9 candidates", func(d *Description) { d.Candidates = make([]Candidate, 9) }, nil},
		{"kind 3", func(d *Description) { d.Candidates[0].Kind = 3 }, nil},
		{"port 0", func(d *Description) { d.Candidates[0].Addr = netip.MustParseAddrPort("10.0.0.1:0") }, nil},
		{"family 6", func(d *Description) { d.Candidates[0].Addr = netip.MustParseAddrPort("[::ffff:10.0.0.1]:9") }, nil},
	} {
		d := sample()
		if c.change != nil {
			c.change(&d)
		}
		b := d.Append(nil)
		if c.bytes != nil {
			b = c.bytes(b)
		}
		if _, err := ParseDescription(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%q: %v", c.say, err)
		}
	}
}

// No input makes the parser panic, and it encodes what it accepts to the same bytes.
func FuzzParseDescription(f *testing.F) {
	f.Add(sample().Append(nil))
	f.Add(Description{Ufrag: "abcd", Password: strings.Repeat("p", 22)}.Append(nil))
	f.Add([]byte{1, 0, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDescription(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%v is no ErrMalformed", err)
			}
			return
		}
		if again := d.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
