package traverse

import (
	"testing"

	"golang.org/x/net/bpf"
)

// TestFilter runs the filter's part that reads the packet in a virtual machine;
// the extensions in front (protocol and kind of link) are the kernel's.
func TestFilter(t *testing.T) {
	raw, err := synFilter()
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("it cannot be disassembled")
	}
	vm, err := bpf.NewVM(program[4:])
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(b []byte)) []byte { b := linuxSYN(t).Append(nil); f(b); return b }
	for _, tc := range []struct {
		what string
		in   []byte
		pass bool
	}{
		{"SYN", change(func([]byte) {}), true},
		{"SYN with ECN", change(func(b []byte) { b[33] = flagSYN | flagECE | flagCWR }), true},
		{"SYN/ACK", change(func(b []byte) { b[33] = flagSYN | flagACK }), true},
		{"ACK", change(func(b []byte) { b[33] = flagACK }), false},
		{"RST", change(func(b []byte) { b[33] = flagRST }), false},
		{"SYN and RST", change(func(b []byte) { b[33] = flagSYN | flagRST }), false},
		{"FIN", change(func(b []byte) { b[33] = flagFIN | flagACK }), false},
		{"UDP", change(func(b []byte) { b[9] = 17 }), false},
		{"later fragment", change(func(b []byte) { b[7] = 1 }), false},
		{"IP options", append([]byte{0x46}, append(change(func([]byte) {})[1:20], append(make([]byte, 4), change(func([]byte) {})[20:]...)...)...), true},
		{"too short", make([]byte, 20), false},
	} {
		n, err := vm.Run(tc.in)
		if err != nil || (n > 0) != tc.pass {
			t.Errorf("%s: %d, %v; want pass %v", tc.what, n, err, tc.pass)
		}
	}
}
