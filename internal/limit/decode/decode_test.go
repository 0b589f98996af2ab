package decode_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/decode"
	_ "github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// types returns all types of messages that this module has, by name.
func types() (all []protoreflect.MessageType) {
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		if strings.HasPrefix(string(t.Descriptor().FullName()), "isthmus.") {
			all = append(all, t)
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	return all
}

// slack is what the oracle allows beside four times the bytes and the bound of the type: with that of
// most types 1 MiB.
const slack = 1<<20 - decode.MaxMemory

// measure decodes b and returns an error if that took too much memory.
func measure(t protoreflect.MessageType, b []byte) error {
	_, memory := decode.Bounds(t.New().Interface())
	most := uint64(4*len(b) + memory + slack)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := t.New().Interface()
	decode.Unmarshal(b, m)
	runtime.ReadMemStats(&after)
	if after.TotalAlloc-before.TotalAlloc <= most { // with all that is garbage already
		return nil
	}
	m = nil
	runtime.GC()
	runtime.ReadMemStats(&before)
	m = t.New().Interface()
	err := decode.Unmarshal(b, m)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+most {
		return fmt.Errorf("a %s of %d bytes took %d of memory (%v)", t.Descriptor().FullName(), len(b), after.HeapAlloc-before.HeapAlloc, err)
	}
	runtime.KeepAlive(m)
	return nil
}

// fill repeats a field up to n bytes.
func fill(n int, unit []byte) []byte { return bytes.Repeat(unit, max(n/len(unit), 1)) }

func tagged(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// hostile returns messages of about n bytes each that take as much memory as can be, of a type and of
// all that are in it.
func hostile(md protoreflect.MessageDescriptor, n, depth int) (all [][]byte) {
	all = append(all,
		fill(n, protowire.AppendVarint(protowire.AppendTag(nil, 100_000, protowire.VarintType), 1)), // unknown
		fill(n, tagged(100_000, nil)),
	)
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		number := fd.Number()
		switch kind := fd.Kind(); {
		case fd.Message() != nil:
			all = append(all, fill(n, tagged(number, nil)), fill(n, tagged(number, everything(fd.Message(), 3))))
			if depth > 0 && n > 64 {
				for _, inside := range hostile(fd.Message(), n-16, depth-1) {
					all = append(all, tagged(number, inside))
				}
			}
		case kind == protoreflect.StringKind, kind == protoreflect.BytesKind:
			all = append(all, fill(n, tagged(number, nil)), fill(n, tagged(number, []byte("x"))), fill(n, tagged(number, bytes.Repeat([]byte("x"), 17))), tagged(number, bytes.Repeat([]byte("x"), n)))
		default:
			one := []byte{1}
			switch kind {
			case protoreflect.Fixed32Kind, protoreflect.FloatKind, protoreflect.Sfixed32Kind:
				one = protowire.AppendFixed32(nil, 1)
			case protoreflect.Fixed64Kind, protoreflect.DoubleKind, protoreflect.Sfixed64Kind:
				one = protowire.AppendFixed64(nil, 1)
			}
			all = append(all, fill(n, append(protowire.AppendTag(nil, number, kindOf(one)), one...)), tagged(number, fill(n, one)), fill(n, tagged(number, one)))
		}
	}
	if n := md.Oneofs().Len(); n > 0 && md.Oneofs().Get(0).Fields().Len() > 1 {
		var turns []byte
		for i := range md.Oneofs().Get(0).Fields().Len() {
			turns = append(turns, tagged(md.Oneofs().Get(0).Fields().Get(i).Number(), nil)...)
		}
		all = append(all, fill(n, turns))
	}
	return all
}

func kindOf(number []byte) protowire.Type {
	return map[int]protowire.Type{1: protowire.VarintType, 4: protowire.Fixed32Type, 8: protowire.Fixed64Type}[len(number)]
}

// everything returns a message that has each field once, as short as can be.
func everything(md protoreflect.MessageDescriptor, depth int) (b []byte) {
	for i := range md.Fields().Len() {
		switch fd := md.Fields().Get(i); {
		case fd.Message() != nil && depth > 0:
			b = append(b, tagged(fd.Number(), everything(fd.Message(), depth-1))...)
		case fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.BytesKind, fd.Message() != nil:
			b = append(b, tagged(fd.Number(), nil)...)
		}
	}
	return b
}

// No message of any type takes more memory than four times its bytes and 1 MiB, whatever it consists
// of; lists of hosts may take more. What is refused of lists is refused for that.
func TestMemory(t *testing.T) {
	all := types()
	packages := map[protoreflect.FullName]bool{}
	for _, mt := range all {
		packages[mt.Descriptor().ParentFile().Package()] = true
		decode.Unmarshal(everything(mt.Descriptor(), 4), mt.New().Interface()) // what is allocated once, for all types in it
	}
	if len(packages) < 3 || len(all) < 100 {
		t.Fatalf("%d types in %v", len(all), packages)
	}
	refused, sample := 0, rand.New(rand.NewPCG(1, 1))
	for _, mt := range all {
		most, _ := decode.Bounds(mt.New().Interface())
		for _, n := range []int{2 << 10, 48 << 10, min(most, 128<<10) - 100} {
			depth := 3
			if n > 64<<10 {
				depth = 1
			}
			for _, b := range hostile(mt.Descriptor(), n, depth) {
				if !testload.Full() && sample.IntN(40) > 0 {
					continue
				}
				if _, err := decode.Check(b, mt.New().Interface()); err != nil {
					if !errors.Is(err, overlay.ErrOverloaded) {
						t.Fatal(err)
					}
					refused++
					continue
				}
				if err := measure(mt, b); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, m := range []proto.Message{
		&controlpb.RegisterRequest{}, &controlpb.PublishRequest{}, &controlpb.AccountRequest{}, &controlpb.ResolveRequest{}, &controlpb.HostList{},
		&nodepb.JobsResponse{}, &nodepb.HostsResponse{}, &nodepb.MeasureRequest{},
	} {
		most, _ := decode.Bounds(m)
		if _, err := decode.Check(fill(most, []byte{10, 0}), m); err == nil {
			t.Errorf("%d bytes of empty elements in a %T are taken", most, m)
		}
	}
	t.Logf("%d types, %d messages refused", len(all), refused)
}

// Messages that daemons send are taken, as large as they may be.
func TestRegularMessages(t *testing.T) {
	for _, most := range []int{64 << 10, 1 << 20, 4 << 20} {
		for name, m := range regular(most) {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if bytes, _ := decode.Bounds(m); len(b) > bytes {
				continue
			}
			if err := decode.Unmarshal(b, m.ProtoReflect().New().Interface()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// regular returns messages of about so many bytes.
func regular(n int) map[string]proto.Message {
	process := &controlpb.Process{Job: "solver-0123456789abcdef0123456789abcdef", Rank: 1000}
	hosts, told := &controlpb.HostList{}, &nodepb.HostsResponse{}
	for i := range min(n/35, 20_000) {
		hosts.Hosts = append(hosts.Hosts, &controlpb.Host{Site: "a", Node: fmt.Sprint("n", i), State: controlpb.Host_UP, Offer: &controlpb.HostOffer{Jobs: 1, Processes: 4}})
		told.Hosts = append(told.Hosts, &nodepb.Host{Node: fmt.Sprint("a/n", i), State: "up", Jobs: 1, Processes: 4})
	}
	register, withdraw, resolve, known := &controlpb.RegisterRequest{}, &controlpb.WithdrawRequest{}, &controlpb.ResolveRequest{}, &controlpb.ResolveResponse{}
	for range n / 250 {
		point := &controlpb.AccessPoint{Process: process, Generation: 1 << 60, Site: "alpha", Node: "n1", Local: "10.0.0.1:40000", Proof: make([]byte, 96)}
		register.Points = append(register.Points, point)
		known.Answers = append(known.Answers, &controlpb.Answer{Point: point, Plan: 1})
	}
	for range n / 60 {
		withdraw.Processes = append(withdraw.Processes, &controlpb.Withdrawal{Process: process, Generation: 1 << 60})
		resolve.Questions = append(resolve.Questions, &controlpb.Question{Process: process})
	}
	manifest, start := &nodepb.Manifest{Name: []byte("program")}, &nodepb.Start{Argv: nodepb.Bytes([]string{"program"})}
	for range min(n/34, 65536) {
		manifest.Sums = append(manifest.Sums, make([]byte, 32))
	}
	for i := range min(n/40, 10_000) {
		start.Nodes = append(start.Nodes, &nodepb.NodeOfJob{Node: fmt.Sprintf("alpha/n%d", i), Ranks: []uint32{uint32(i)}})
		start.Environment = append(start.Environment, []byte("SOME_VARIABLE=value"))
	}
	jobs := &nodepb.JobsResponse{}
	for range n / 300 {
		jobs.Jobs = append(jobs.Jobs, &nodepb.JobHere{Job: process.Job, State: "running", By: "alpha/n1", User: "alice", Argv: nodepb.Bytes([]string{"program", "argument"}), Places: []*nodepb.Process{{Rank: 1}, {Rank: 2}}})
	}
	return map[string]proto.Message{
		"hosts": hosts, "hosts of submitters": told, "register": register, "withdraw": withdraw, "resolve": resolve, "answers": known, "jobs": jobs,
		"manifest": &nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: manifest}},
		"start":    &nodepb.ToNode{Say: &nodepb.ToNode_Start{Start: start}},
		"chunk":    &nodepb.ToNode{Say: &nodepb.ToNode_Chunk{Chunk: &nodepb.Chunk{Data: make([]byte, min(n, 1<<20))}}},
		"status":   &controlpb.StatusResponse{Json: make([]byte, n-100)},
	}
}

// What is too long is refused whatever it consists of, and what is malformed is decoded, to fail.
func TestTooLong(t *testing.T) {
	long, err := proto.Marshal(&controlpb.ReportRequest{TargetSite: strings.Repeat("x", 64<<10)})
	if err != nil {
		t.Fatal(err)
	}
	if err := decode.Unmarshal(long, &controlpb.ReportRequest{}); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("a report of %d bytes: %v", len(long), err)
	}
	if err := decode.Unmarshal([]byte{10, 200, 1}, &controlpb.ReportRequest{}); err == nil || errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("half a field: %v", err)
	}
}

// FuzzMemory is TestMemory for what a fuzzer makes of messages of all types.
func FuzzMemory(f *testing.F) {
	all := types()
	for i, mt := range all {
		for _, b := range hostile(mt.Descriptor(), 1<<10, 2) {
			f.Add(uint16(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, i uint16, b []byte) {
		mt := all[int(i)%len(all)]
		decode.Unmarshal(everything(mt.Descriptor(), 4), mt.New().Interface())
		if err := measure(mt, b); err != nil {
			t.Error(err)
		}
	})
}
