package wan

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// TestGolden compares every message byte for byte with the kernel's format.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"bind", appendBind(nil, 0x0102),
			"1c000000 0203 0500 00000000 00000000 00 00 0102 0800 0100 01 00 0000"},
		{"setting", appendSetting(nil, 7, setting{copy: 64, gso: true}, 65536, 0),
			"38000000 0203 0100 00000000 00000000 00 00 0007" +
				"0900 0200 00000040 02 000000" + "0800 0300 00010000" + "0800 0400 00000004" + "0800 0500 00000004"},
		{"setting without super-packets", appendSetting(nil, 7, setting{copy: 65535}, 1, nlmAck),
			"38000000 0203 0500 00000000 00000000 00 00 0007" +
				"0900 0200 0000ffff 02 000000" + "0800 0300 00000001" + "0800 0400 00000004" + "0800 0500 00000000"},
		{"accept one", appendVerdict(nil, msgVerdict, 3, verdictAccept, 0x01020304),
			"20000000 0103 0100 00000000 00000000 00 00 0003 0c00 0200 00000001 01020304"},
		{"drop one", appendVerdict(nil, msgVerdict, 3, verdictDrop, 9),
			"20000000 0103 0100 00000000 00000000 00 00 0003 0c00 0200 00000000 00000009"},
		{"accept up to", appendVerdict(nil, msgBatch, 3, verdictAccept, 9),
			"20000000 0303 0100 00000000 00000000 00 00 0003 0c00 0200 00000001 00000009"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.got, want) {
			t.Errorf("%s:\n got %x\nwant %x", c.name, c.got, want)
		}
	}
	two := appendVerdict(appendBind(nil, 1), msgVerdict, 1, 1, 1)
	if native.Uint32(two) != 28 || native.Uint32(two[28:]) != 32 {
		t.Errorf("two messages in a row: %x", two)
	}
}

// packetMessage returns what the kernel sends for a packet cut to head.
func packetMessage(id, in, out uint32, head []byte, total int, super bool) []byte {
	b := appendMessage(nil, msgPacket, 0, 5)
	b = appendAttr(b, attrPacketHdr, byte(id>>24), byte(id>>16), byte(id>>8), byte(id), 8, 0, 2)
	b = appendAttr32(b, attrInDev, in)
	b = appendAttr32(b, attrOutDev, out)
	b = appendAttr(b, attrTime, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 7)
	b = appendAttr(b, 9, 1, 2, 3, 4, 5, 6) // a hardware address, unknown here
	if super {
		b = appendAttr32(b, attrSkbInfo, skbGSO)
	}
	if total > len(head) {
		b = appendAttr32(b, attrCapLen, uint32(total))
	}
	return endMessage(appendAttr(b, attrPayload, head...), 0)
}

func TestDecodePacket(t *testing.T) {
	head := []byte("first bytes")
	b := packetMessage(77, 3, 4, head, 40000, true)
	m, rest, err := nextMessage(append(b, "more"...))
	if err != nil || string(rest) != "more" {
		t.Fatalf("rest %q, %v", rest, err)
	}
	if m.id != 77 || m.in != 3 || m.out != 4 || !bytes.Equal(m.head, head) || m.total != 40000 || !m.super || m.arrival.UnixMicro() != 100_000_007 {
		t.Errorf("%+v", m)
	}
	m, _, err = nextMessage(packetMessage(78, 3, 4, head, len(head), false))
	if err != nil || m.total != len(head) || m.super {
		t.Errorf("whole packet: %+v, %v", m, err)
	}
	for n := range b {
		if _, _, err := nextMessage(b[:n]); !errors.Is(err, errMessage) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	noID := endMessage(appendMessage(nil, msgPacket, 0, 5), 0)
	if _, _, err := nextMessage(noID); !errors.Is(err, errMessage) {
		t.Errorf("packet without id: %v", err)
	}
}

func TestDecodeError(t *testing.T) {
	b := appendMessage(nil, msgError, 0, 0)[:16]
	b = native.AppendUint32(b, ^uint32(2)+1) // -ENOENT
	m, _, err := nextMessage(endMessage(b, 0))
	if err != nil || m.errno != 2 {
		t.Errorf("errno %d, %v", m.errno, err)
	}
}

func FuzzNextMessage(f *testing.F) {
	f.Add(packetMessage(1, 2, 3, []byte("head"), 1500, true))
	f.Add(appendBind(nil, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := nextMessage(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("no progress")
			}
			if m.total < len(m.head) {
				t.Fatalf("packet of %d bytes, %d of them seen", m.total, len(m.head))
			}
			b = rest
		}
	})
}
