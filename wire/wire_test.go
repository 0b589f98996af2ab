package wire

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

const job = overlay.JobID("demo-00112233445566778899aabbccddeeff")

// samples holds one frame of every type with every field set, so that a field that is left out of
// the layout is noticed. Their encodings are kept in testdata/golden.hex; a change there is a
// change of the protocol.
func samples() []Frame {
	var id ID
	var secret [32]byte
	for i := range id {
		id[i] = byte(0xa0 + i)
	}
	for i := range secret {
		secret[i] = byte(i)
	}
	path := overlay.Path{
		Technique: overlay.Relay, Via: overlay.ViaTarget, Proxy: "p1",
		Peer:   overlay.NodeID{Site: "siteb", Name: "b1"},
		Reason: "both sites refuse inbound connections", Setup: 40250 * time.Microsecond,
	}
	small := path
	small.Small = true
	return []Frame{
		&Intro{Kind: IntroReverse, ID: id, Job: job, Rank: 7, From: overlay.NodeID{Site: "sitea", Name: "a1"}, Technique: overlay.Direct, Via: overlay.ViaAsker},
		&Ticket{Link: id, End: 1, Job: job, Asker: 3, Target: 4, Proxy: "p1", Expires: 1_700_000_000_123, Limit: 1 << 40, MAC: secret},
		&Refuse{Code: CodeForbidden, By: "proxy p1", Text: "the ticket expired 3 s ago"},
		&Hello{Features: 1, Job: job, From: 1, To: 2, Generation: 99, Site: "sitea", Dialled: true, Link: ID{1, 2, 3}, Again: true, Nonce: secret},
		&Proof{Received: 5, MAC: secret},
		&LocalHello{Features: 1, Key: secret, Job: job, Rank: 5, Generation: 6},
		&LocalWelcome{Features: 1, Node: overlay.NodeID{Site: "sitea", Name: "a1"}},
		&LocalDial{Request: 9, Rank: 4, Budget: 30 * time.Second, Ways: overlay.RelayOnly},
		&LocalCancel{Request: 9},
		&LocalDialled{Request: 9, Carrier: 12, Seal: true, Idle: 55 * time.Second, Path: path},
		&LocalFailed{Request: 9, Code: CodeNoPath, Text: "direct timed out"},
		&LocalIncoming{Carrier: 13, Path: small},
		&LocalFault{Carrier: 13, Code: CodeUnreachable, Text: "helper siteb/b1 cannot reach proxy p1"},
		&ControlHello{Oldest: 1, Newest: 2, Features: 3, Software: "isthmus 0.1"},
		&Observe{},
		&Observed{From: netip.MustParseAddrPort("100.64.1.2:30100"), Time: time.UnixMicro(1_700_000_000_123_456)},
		&LocalLeave{},
		&LocalPublish{Request: 14, Again: true, Name: "solver", Port: "port text"},
		&LocalUnpublish{Request: 15, Name: "solver"},
		&LocalLookup{Request: 16, Budget: 5 * time.Second, Name: "solver"},
		&LocalNamed{Request: 16, Port: "port text"},
		&LocalDead{Ranks: []uint32{2, 3}, Text: "node siteb/b1: no news and no answer to pings"},
		&LocalGrant{Grant: []byte("grant")},
		&LocalTraffic{overlay.Traffic{Link: id, Rank: 4, Peer: path.Peer, Technique: overlay.Reversed, Sent: 2e12, Received: 7, Lasted: 90500 * time.Millisecond, Over: true}},
		&Ticket{Link: id, End: 1, Job: job, Asker: 3, Target: 4, Proxy: "p1", Expires: 1_700_000_000_123, Limit: 1 << 40,
			Principal: overlay.Principal{User: "alice", Project: "climate"}, MAC: secret},
		&Ticket{Link: id, End: 1, Job: job, Asker: 3, Target: 4, Proxy: "p1", Expires: 1_700_000_000_123, Limit: 1 << 40,
			Principal: overlay.Principal{User: "alice", Project: "climate"}, MAC: secret, Allowances: [2]overlay.Allowance{
				{Site: "sitea", Rule: "climate", Owner: "project climate", Contact: "grid@sitea.example.org", Links: 100, Rate: 1e9, Month: 2e12},
				{Site: "siteb", Rule: "guests", Owner: "user bob@siteb", Contact: "ops", Links: 4}}},
		&LocalPlace{Node: overlay.NodeID{Site: "sitea", Name: "a1"}, Generation: 6},
		&LocalProof{Signature: [64]byte(append(secret[:], secret[:]...))},
		&LocalOutcome{Carrier: 12, Code: CodeTimeout, Text: "no proof within 2s"},
		&Enrol{Token: "isthmus-token-1.e30.AA", Request: []byte{0x30, 0x01, 0x02}},
		&Padding{N: 3},
		&LocalReserve{Rank: 4, Generation: 99},
		&Share{},
		&Enrolled{Certificates: [][]byte{{0x30, 0x03}, {0x30, 0x04, 0x05}}},
	}
}

func TestGolden(t *testing.T) {
	var got strings.Builder
	seen := map[Type]bool{}
	for _, f := range samples() {
		seen[f.Type()] = true
		fmt.Fprintf(&got, "%v %x\n", f.Type(), Append(nil, f))
	}
	for typ := range typeNames {
		if !seen[typ] {
			t.Errorf("no sample of %v", typ)
		}
	}
	name := filepath.Join("testdata", "golden.hex")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(name, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the encoding changed; if the protocol did, set UPDATE_GOLDEN=1\n got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, f := range samples() {
		// What follows the frame must stay unread: it belongs to the next reader.
		in := bytes.NewReader(append(Append(nil, f), "rest"...))
		back, err := Read(in)
		if err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%v: got %+v, %v; want %+v", f.Type(), back, err, f)
		}
		if rest, _ := io.ReadAll(in); string(rest) != "rest" {
			t.Errorf("%v: %q left unread", f.Type(), rest)
		}
	}
}

func TestEveryShorterPrefixIsRefused(t *testing.T) {
	for _, f := range samples() {
		whole := Append(nil, f)
		for n := range whole {
			if _, err := Read(bytes.NewReader(whole[:n])); err == nil {
				t.Errorf("%v: the first %d of %d bytes were accepted", f.Type(), n, len(whole))
			}
			if n < HeaderLen {
				continue
			}
			// The same with a header that matches the shorter body.
			short := append([]byte(nil), whole[:n]...)
			short[4], short[5] = byte((n-HeaderLen)>>8), byte(n-HeaderLen)
			if _, err := Read(bytes.NewReader(short)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v: a body cut to %d bytes gave %v", f.Type(), n-HeaderLen, err)
			}
		}
		long := append([]byte(nil), append(whole, 0)...)
		n := len(long) - HeaderLen
		long[4], long[5] = byte(n>>8), byte(n)
		if _, err := Read(bytes.NewReader(long)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: a byte too many gave %v", f.Type(), err)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	for _, tc := range []struct {
		hex   string
		class error
		text  string
	}{
		{"474554202f20", ErrMagic, "not an Isthmus frame: it starts with 47 45"},
		{"495302010000", ErrVersion, "unknown protocol version: the peer speaks version 2, this side 1"},
		{"495301011001", ErrMalformed, "intro says it has 4097 bytes, at most 4096 are allowed"},
		{"4953017f0000", ErrType, "unexpected frame: type 0x7f"},
	} {
		in, _ := hex.DecodeString(tc.hex)
		_, err := Read(bytes.NewReader(in))
		if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %q", tc.hex, err, tc.text)
		}
	}
}

func TestUnknownOptionalFrameIsSkipped(t *testing.T) {
	in := []byte{'I', 'S', Version, byte(OptionalBit | 0x7f), 0, 3, 1, 2, 3}
	in = Append(in, &LocalCancel{Request: 5})
	f, err := Read(bytes.NewReader(in))
	if c, ok := f.(*LocalCancel); err != nil || !ok || c.Request != 5 {
		t.Fatalf("got %+v, %v", f, err)
	}
}

func TestFieldChecks(t *testing.T) {
	bad := func(f Frame, change func(body []byte)) error {
		b := Append(nil, f)
		change(b[HeaderLen:])
		_, err := Read(bytes.NewReader(b))
		return err
	}
	s := samples()
	for name, err := range map[string]error{
		"intro kind":    bad(s[0], func(b []byte) { b[0] = 4 }),
		"job id":        bad(s[0], func(b []byte) { b[18] = '/' }),
		"ticket end":    bad(s[1], func(b []byte) { b[16] = 2 }),
		"truth value":   bad(s[3], func(b []byte) { b[len(b)-33] = 2 }),
		"technique":     bad(s[9], func(b []byte) { b[12] = 99 }),
		"certificates":  bad(s[len(s)-1], func(b []byte) { b[0] = 5 }),
		"blob length":   bad(s[len(s)-1], func(b []byte) { b[1] = 0x10 }),
		"versions":      bad(s[13], func(b []byte) { b[0] = 3 }),
		"text length":   bad(s[2], func(b []byte) { b[10] = 0xff }),
		"nowhere":       bad(s[15], func(b []byte) { b[16], b[17] = 0, 0 }),
		"year 10000":    bad(s[15], func(b []byte) { b[18] = 0xff }),
		"user":          bad(s[24], func(b []byte) { b[len(b)-45] = '\n' }),
		"nobody":        bad(s[24], func(b []byte) { b[len(b)-46] = 0 }),
		"no grant":      bad(s[22], func(b []byte) { b[1] = 0 }),
		"a long link":   bad(s[23], func(b []byte) { b[len(b)-9] = 0xff }),
		"over or not":   bad(s[23], func(b []byte) { b[len(b)-1] = 2 }),
		"string length": bad(s[6], func(b []byte) { b[4] = 0xff }),
	} {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLongTextIsCut(t *testing.T) {
	f, err := Read(bytes.NewReader(Append(nil, &Refuse{By: "x", Text: strings.Repeat("y", 10000)})))
	if err != nil {
		t.Fatal(err)
	}
	if text := f.(*Refuse).Text; len(text) != maxText || !strings.HasSuffix(text, "y...") {
		t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-5:])
	}
}

func TestCodes(t *testing.T) {
	for code, class := range codeErrors {
		err := code.Errorf("proxy p1: %s", "no")
		if !errors.Is(err, class) || err.Error() != "proxy p1: no" {
			t.Errorf("code %d: %v", code, err)
		}
		if got := CodeOf(fmt.Errorf("outer: %w", err)); got != code {
			t.Errorf("CodeOf(code %d) = %d", code, got)
		}
	}
	for err, want := range map[error]Code{
		context.DeadlineExceeded:    CodeTimeout,
		os.ErrDeadlineExceeded:      CodeTimeout,
		ErrType:                     CodeMalformed,
		errors.New("anything else"): CodeRefused,
	} {
		if got := CodeOf(err); got != want {
			t.Errorf("CodeOf(%v) = %d, want %d", err, got, want)
		}
	}
	if !errors.Is(Code(200).Err(), overlay.ErrRefused) {
		t.Error("an unknown code is not a refusal")
	}
}

// FuzzRead checks that every accepted frame encodes to the same bytes, so no frame has two
// encodings, and that no input makes the reader panic.
func FuzzRead(f *testing.F) {
	for _, s := range samples() {
		f.Add(Append(nil, s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		frame, err := Read(r)
		if err != nil {
			return
		}
		used := in[:len(in)-r.Len()]
		if out := Append(nil, frame); !bytes.HasSuffix(used, out) {
			t.Fatalf("%x was read as %+v, which encodes to %x", used, frame, out)
		}
	})
}
