package traverse

import (
	"testing"

	"golang.org/x/net/bpf"
)

// TestFilter runs the filter's parts that read the packet in a virtual machine; the preceding
// extensions (protocol and kind of link) are the kernel's.
func TestFilter(t *testing.T) {
	raw, err := synFilter()
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("it cannot be disassembled")
	}
	// Where IPv4 and IPv6 begin.
	machine := func(start int) *bpf.VM {
		vm, err := bpf.NewVM(program[start:])
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	four, six := machine(9), machine(5)
	change := func(f func(b []byte)) []byte { b := linuxSYN(t).Append(nil); f(b); return b }
	change6 := func(f func(b []byte)) []byte {
		b := linuxSYN(t).Rewrite(client6, server6).Append(nil)
		f(b)
		return b
	}
	for _, tc := range []struct {
		what string
		vm   *bpf.VM
		in   []byte
		pass bool
	}{
		{"SYN", four, change(func([]byte) {}), true},
		{"SYN with ECN", four, change(func(b []byte) { b[33] = flagSYN | flagECE | flagCWR }), true},
		{"SYN/ACK", four, change(func(b []byte) { b[33] = flagSYN | flagACK }), true},
		{"ACK", four, change(func(b []byte) { b[33] = flagACK }), false},
		{"RST", four, change(func(b []byte) { b[33] = flagRST }), false},
		{"SYN and RST", four, change(func(b []byte) { b[33] = flagSYN | flagRST }), false},
		{"FIN", four, change(func(b []byte) { b[33] = flagFIN | flagACK }), false},
		{"UDP", four, change(func(b []byte) { b[9] = 17 }), false},
		{"later fragment", four, change(func(b []byte) { b[7] = 1 }), false},
		{"IP options", four, append([]byte{0x46}, append(change(func([]byte) {})[1:20], append(make([]byte, 4), change(func([]byte) {})[20:]...)...)...), true},
		{"too short", four, make([]byte, 20), false},

		{"IPv6 SYN", six, change6(func([]byte) {}), true},
		{"IPv6 SYN with ECN", six, change6(func(b []byte) { b[53] = flagSYN | flagECE | flagCWR }), true},
		{"IPv6 SYN/ACK", six, change6(func(b []byte) { b[53] = flagSYN | flagACK }), true},
		{"IPv6 ACK", six, change6(func(b []byte) { b[53] = flagACK }), false},
		{"IPv6 RST", six, change6(func(b []byte) { b[53] = flagRST }), false},
		{"IPv6 FIN", six, change6(func(b []byte) { b[53] = flagFIN | flagACK }), false},
		{"IPv6 UDP", six, change6(func(b []byte) { b[6] = 17 }), false},
		{"IPv6 extension header", six, change6(func(b []byte) { b[6] = 60 }), false},
		{"IPv6 too short", six, make([]byte, 40), false},
	} {
		n, err := tc.vm.Run(tc.in)
		if err != nil || (n > 0) != tc.pass {
			t.Errorf("%s: %d, %v; want pass %v", tc.what, n, err, tc.pass)
		}
	}
}
