package traverse

import "golang.org/x/net/bpf"

// synFilter passes whole TCP segments with SYN and neither RST nor FIN, except those on the
// loopback interface, where injected ones travel, and those with IPv6 extension headers. Offsets
// count from the IP header.
func synFilter() ([]bpf.RawInstruction, error) {
	const (
		etherIPv4 = 0x0800
		etherIPv6 = 0x86dd
		loopback  = 772 // ARPHRD_LOOPBACK
	)
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLinkLayerType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loopback, SkipTrue: 15}, // to the end, as are all below
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv4, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv6, SkipTrue: 12},
		bpf.LoadAbsolute{Off: 6, Size: 1}, // next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolTCP, SkipTrue: 10},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ip6Header},
		bpf.Jump{Skip: 5},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolTCP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4}, // a later fragment
		bpf.LoadMemShift{Off: 0},
		bpf.LoadIndirect{Off: 13, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: flagSYN | flagRST | flagFIN},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: flagSYN, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: MaxPacket},
	})
}
