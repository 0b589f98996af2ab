package traverse

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	client = netip.MustParseAddrPort("100.64.1.2:36073")
	server = netip.MustParseAddrPort("10.2.0.11:42323")

	client6 = netip.MustParseAddrPort("[2001:db8:1::b]:36073")
	server6 = netip.MustParseAddrPort("[2001:db8:2::b]:42323")
)

// linuxOptions are the options of Linux's SYN: MSS 1460, SACK permitted, a timestamp, window scale
// 7.
const linuxOptions = "020405b4 0402 080a 11223344 55667788 01 030307"

func linuxSYN(t testing.TB) Segment {
	return Segment{Src: client, Dst: server, Seq: 0xe1294704, Flags: flagSYN, Window: 64240, Options: unhex(t, linuxOptions)}
}

// The bytes of every segment that is ever made, including checksums.
func TestGoldenPackets(t *testing.T) {
	syn := linuxSYN(t)
	synack := Segment{Src: server, Dst: client, Seq: 0xefb155c7, Ack: syn.Seq + 1, Flags: flagSYN | flagACK, Window: 65160, Options: unhex(t, linuxOptions)}
	answer := Segment{Src: client, Dst: server, Seq: syn.Seq, Ack: synack.Seq + 1, Flags: flagSYN | flagACK, Window: 64240, Options: unhex(t, linuxOptions)}
	six := syn.Rewrite(client6, server6)
	for _, tc := range []struct {
		what string
		s    Segment
		hex  string
	}{
		{"syn", syn, "4500003c000040004006cb6d644001020a02000b 8ce9a553e129470400000000a002faf0 72000000 020405b40402080a112233445566778801030307"},
		{"rewritten", syn.Rewrite(netip.MustParseAddrPort("10.1.0.11:36073"), server), "4500003c00004000400626a40a01000b0a02000b 8ce9a553e129470400000000a002faf0 cd360000 020405b40402080a112233445566778801030307"},
		{"opener", opener(syn), "45000028000040004006cb810a02000b64400102 a5538ce9e1294704e129470550100400 b9eb0000"},
		{"echo", echo(synack), "4500003c000040004006cb6d0a02000b64400102 a5538ce9efb155c700000000a002fe88 1e0c0000 020405b40402080a112233440000000001030307"},
		{"finish", finish(answer), "4500003c000040004006cb6d644001020a02000b 8ce9a553e1294705efb155c8a01001f5 25730000 020405b40402080a112233445566778801030307"},
		{"syn over IPv6", six, "6000000000280640 20010db800010000000000000000000b 20010db800020000000000000000000b 8ce9a553e129470400000000a002faf0 85c40000 020405b40402080a112233445566778801030307"},
		{"opener over IPv6", opener(six), "6000000000140640 20010db800020000000000000000000b 20010db800010000000000000000000b a5538ce9e1294704e129470550100400 cdaf0000"},
		{"echo over IPv6", echo(synack.Rewrite(server6, client6)), "6000000000280640 20010db800020000000000000000000b 20010db800010000000000000000000b a5538ce9efb155c700000000a002fe88 31d00000 020405b40402080a112233440000000001030307"},
		{"finish over IPv6", finish(answer.Rewrite(client6, server6)), "6000000000280640 20010db800010000000000000000000b 20010db800020000000000000000000b 8ce9a553e1294705efb155c8a01001f5 39370000 020405b40402080a112233445566778801030307"},
	} {
		got := tc.s.Append([]byte("before"))
		if want := "before" + string(unhex(t, tc.hex)); string(got) != want {
			t.Errorf("%s:\n got %x\nwant %x", tc.what, got[6:], want[6:])
		}
		checkSums(t, got[6:])
		back, err := Parse(append(got[6:], "padding"...))
		if err != nil || !same(back, tc.s) {
			t.Errorf("%s: parsed as %+v, %v", tc.what, back, err)
		}
	}
	if !bytes.Equal(synack.Options, unhex(t, linuxOptions)) {
		t.Error("echo changed the options of its argument")
	}
}

// same compares segments; no options and an empty list of them are the same.
func same(a, b Segment) bool {
	equal := bytes.Equal(a.Options, b.Options)
	a.Options, b.Options = nil, nil
	return equal && reflect.DeepEqual(a, b)
}

// checkSums verifies the checksums the simple way: including the checksum itself, the sum of all
// words is all ones.
func checkSums(t testing.TB, p []byte) {
	t.Helper()
	add := func(words ...[]byte) (n uint64) {
		for _, w := range words {
			for i := 0; i < len(w); i += 2 {
				n += uint64(binary.BigEndian.Uint16(w[i:]))
			}
		}
		for n > 0xffff {
			n = n&0xffff + n>>16
		}
		return n
	}
	if p[0]>>4 == 6 { // RFC 8200, section 8.1
		pseudo := []byte{0, 0, 0, byte(len(p) - 40), 0, 0, 0, 6}
		if n := add(p[8:40], pseudo, p[40:]); n != 0xffff {
			t.Errorf("checksum of %x: %#x", p, n)
		}
		return
	}
	pseudo := []byte{0, 6, 0, byte(len(p) - 20)}
	if a, b := add(p[:20]), add(p[12:20], pseudo, p[20:]); a != 0xffff || b != 0xffff {
		t.Errorf("checksums of %x: %#x, %#x", p, a, b)
	}
}

func TestParseRefuses(t *testing.T) {
	refused := func(good []byte, text string, change func(b []byte) []byte) {
		t.Helper()
		s, err := Parse(change(bytes.Clone(good)))
		if !errors.Is(err, errPacket) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	good := linuxSYN(t).Append(nil)
	for text, change := range map[string]func(b []byte) []byte{
		"no IP header":            func(b []byte) []byte { b[0] = 0x55; return b },
		"0 bytes that are no":     func([]byte) []byte { return nil },
		"header of 16":            func(b []byte) []byte { b[0] = 0x44; return b },
		"a packet of 61 bytes":    func(b []byte) []byte { b[3]++; return b },
		"a packet of 39 bytes":    func(b []byte) []byte { b[3] = 39; return b },
		"protocol 17":             func(b []byte) []byte { b[9] = 17; return b },
		"fragment":                func(b []byte) []byte { b[6] = 0x20; return b },
		"a TCP header of 16":      func(b []byte) []byte { b[32] = 4 << 4; return b },
		"a TCP header of 60":      func(b []byte) []byte { b[32] = 15 << 4; return b },
		"20 bytes of data (TCP F": func(b []byte) []byte { b[32] = 5 << 4; return b },
	} {
		refused(good, text, change)
	}
	six := linuxSYN(t).Rewrite(client6, server6).Append(nil)
	for text, change := range map[string]func(b []byte) []byte{
		"header of 0":                 func(b []byte) []byte { b[0] = 0x40; return b },
		"39 bytes that are no IPv6":   func(b []byte) []byte { return b[:39] },
		"a payload of 41 bytes":       func(b []byte) []byte { b[5]++; return b },
		"a payload of 19 bytes":       func(b []byte) []byte { b[5] = 19; return b },
		"a payload of 65535 bytes":    func(b []byte) []byte { b[4], b[5] = 0xff, 0xff; return b },
		"next header 17":              func(b []byte) []byte { b[6] = 17; return b },
		"next header 44":              func(b []byte) []byte { b[6] = 44; return b }, // a fragment
		"next header 0":               func(b []byte) []byte { b[6] = 0; return b },  // hop-by-hop options
		"IPv4 addresses in IPv6":      func(b []byte) []byte { copy(b[8:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"); return b },
		"a TCP header of 16 in 40":    func(b []byte) []byte { b[52] = 4 << 4; return b },
		"a TCP header of 60 in 40":    func(b []byte) []byte { b[52] = 15 << 4; return b },
		"20 bytes of data (TCP Fast ": func(b []byte) []byte { b[52] = 5 << 4; return b },
	} {
		refused(six, text, change)
	}
	for _, whole := range [][]byte{good, six} {
		for n := range whole {
			if _, err := Parse(whole[:n]); err == nil {
				t.Errorf("the first %d bytes of %d were taken", n, len(whole))
			}
		}
	}
}

func TestOption(t *testing.T) {
	for _, tc := range []struct {
		options string
		kind    byte
		want    string
	}{
		{linuxOptions, 2, "05b4"},
		{linuxOptions, 3, "07"},
		{linuxOptions, 8, "1122334455667788"},
		{linuxOptions, 5, ""},
		{"00030307", 3, ""}, // after the end
		{"0300", 3, ""},     // a length of nothing
		{"0309ffff", 3, ""}, // a length beyond the end
		{"010103", 3, ""},   // no length
	} {
		if got := hex.EncodeToString(option(unhex(t, tc.options), tc.kind)); got != tc.want {
			t.Errorf("kind %d of %s: %q, want %q", tc.kind, tc.options, got, tc.want)
		}
	}
}

// FuzzParse checks that everything accepted as a segment survives encoding, and that no segment
// made from it panics.
func FuzzParse(f *testing.F) {
	syn := linuxSYN(f)
	f.Add(syn.Append(nil))
	f.Add(opener(syn).Append(nil))
	f.Add(syn.Rewrite(client6, server6).Append(nil))
	f.Add(opener(syn).Rewrite(server6, client6).Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Parse(in)
		if err != nil {
			return
		}
		for _, made := range []Segment{s, opener(s), echo(s), finish(s), s.Rewrite(client, server), s.Rewrite(client6, server6)} {
			b := made.Append(nil)
			checkSums(t, b)
			if back, err := Parse(b); err != nil || !same(back, made) {
				t.Fatalf("%+v came back as %+v, %v", made, back, err)
			}
		}
	})
}
