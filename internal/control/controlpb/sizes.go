package controlpb

import "github.com/isthmus-grid/isthmus/internal/limit/decode"

// What messages may have that need more than 64 KiB. Each DecodeBounds is a decode.Large.

// hostMemory is what 20,000 hosts with short names take beside four bytes for each of theirs.
const hostMemory = 6 << 20

// DecodeBounds allows 20,000 hosts with names of up to 90 bytes.
func (*HostList) DecodeBounds() (bytes, memory int) { return 2 << 20, hostMemory }

// DecodeBounds allows a list of 1 MiB.
func (*RevocationList) DecodeBounds() (bytes, memory int) { return 1<<20 + 64, decode.MaxMemory }

// DecodeBounds allows the names of a process, all in one call.
func (*PublishRequest) DecodeBounds() (bytes, memory int) { return 256 << 10, decode.MaxMemory }

// DecodeBounds allows gRPC's 4 MiB: bytes, which take as much in memory.
func (*StatusResponse) DecodeBounds() (bytes, memory int) { return 4 << 20, decode.MaxMemory }

// DecodeBounds allows a policy of 256 KiB, and what probes found.
func (*JoinRequest) DecodeBounds() (bytes, memory int) { return 512 << 10, decode.MaxMemory }

// DecodeBounds allows what policies of 256 KiB decide.
func (*Plan) DecodeBounds() (bytes, memory int) { return 512 << 10, decode.MaxMemory }

// DecodeBounds allows 1024 questions.
func (*ResolveRequest) DecodeBounds() (bytes, memory int) { return 256 << 10, decode.MaxMemory }

// DecodeBounds allows 1024 answers.
func (*ResolveResponse) DecodeBounds() (bytes, memory int) { return 1 << 20, decode.MaxMemory }

// DecodeBounds allows a reason for each of the processes of a request.
func (*RegisterResponse) DecodeBounds() (bytes, memory int) { return 512 << 10, decode.MaxMemory }

// DecodeBounds allows a reason for each of the names of a request.
func (*PublishResponse) DecodeBounds() (bytes, memory int) { return 512 << 10, decode.MaxMemory }

// DecodeBounds allows a reason for each of the names of a request.
func (*UnpublishResponse) DecodeBounds() (bytes, memory int) { return 512 << 10, decode.MaxMemory }

// DecodeBounds allows 1000 pairs of sites and as many links.
func (*TrafficRequest) DecodeBounds() (bytes, memory int) { return 768 << 10, decode.MaxMemory }

// DecodeBounds allows 1000 pairs of sites.
func (*TrafficResponse) DecodeBounds() (bytes, memory int) { return 256 << 10, decode.MaxMemory }
