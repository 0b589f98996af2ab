package nodepb

import "github.com/isthmus-grid/isthmus/internal/limit/decode"

// What messages may have that need more than 64 KiB. Each DecodeBounds is a decode.Large.

// DecodeBounds allows a chunk of 1 MiB, 65536 sums, and arguments and environment of 1 MiB each.
func (*ToNode) DecodeBounds() (bytes, memory int) { return 4 << 20, decode.MaxMemory }

// DecodeBounds allows 65536 sums.
func (*ToSubmitter) DecodeBounds() (bytes, memory int) { return 4 << 20, decode.MaxMemory }

// DecodeBounds allows what ToNode does, in an envelope, and a part of a file of 1 MiB.
func (*ToAgent) DecodeBounds() (bytes, memory int) { return 5 << 20, decode.MaxMemory }

// DecodeBounds allows a message of 1 MiB.
func (*GossipRequest) DecodeBounds() (bytes, memory int) { return 1<<20 + 4<<10, decode.MaxMemory }

// DecodeBounds allows a payload of 64 KiB.
func (*PingRequest) DecodeBounds() (bytes, memory int) { return 68 << 10, decode.MaxMemory }

// DecodeBounds allows a payload of 64 KiB.
func (*PingResponse) DecodeBounds() (bytes, memory int) { return 68 << 10, decode.MaxMemory }

// DecodeBounds allows 64 nodes with a reason of 1 KiB each.
func (*MeasureResponse) DecodeBounds() (bytes, memory int) { return 128 << 10, decode.MaxMemory }

// DecodeBounds allows some hundred reservations, with the beginnings of their arguments.
func (*JobsResponse) DecodeBounds() (bytes, memory int) { return 256 << 10, decode.MaxMemory }

// DecodeBounds allows 20,000 hosts with names of usual lengths.
func (*HostsResponse) DecodeBounds() (bytes, memory int) { return 4 << 20, 6 << 20 }
