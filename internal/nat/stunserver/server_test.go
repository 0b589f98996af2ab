package stunserver

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

const transaction = "b7e7a701bc34d686fa87dfae"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The encoded answers. The addresses and the transaction are those of the test vectors of RFC 5769,
// so the XORed values are the ones printed there.
func TestReply(t *testing.T) {
	v4 := netip.MustParseAddrPort("192.0.2.1:32853")
	v6 := netip.MustParseAddrPort("[2001:db8:1234:5678:11:2233:4455:6677]:32853")
	empty := "0001 0000 2112a442 " + transaction
	for _, c := range []struct {
		name, in string
		from     netip.AddrPort
		want     verdict
		out      string
	}{
		{"v4", empty, v4, answer, "0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"v4 in v6", empty, netip.MustParseAddrPort("[::ffff:192.0.2.1]:32853"), answer,
			"0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"v6", empty, v6, answer, "0101 0018 2112a442 " + transaction + " 0020 0014 0002 a147 0113a9faa5d3f179bc25f4b5bed2b9d9"},
		{"optional attribute", "0001 0008 2112a442 " + transaction + " 8022 0003 61626300", v4, answer,
			"0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"padding", "0001 0018 2112a442 " + transaction + " 0026 0014 " + strings.Repeat("aa", 20), v4, answer,
			"0101 0018 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643 0026 0008 0000000000000000"},
		{"padding that says nothing", "0001 0004 2112a442 " + transaction + " 0026 0000", v4, answer,
			"0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"just enough padding", "0001 0010 2112a442 " + transaction + " 0026 000c 000000000000000000000000", v4, answer,
			"0101 0010 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643 0026 0000"},
		{"unknown attribute", "0001 0008 2112a442 " + transaction + " 7f01 0004 00000000", v4, refuse,
			"0111 0010 2112a442 " + transaction + " 0009 0004 00000414 000a 0002 7f01 0000"},
		{"nothing", "", v4, dropForeign, ""},
		{"QUIC", "c3" + strings.Repeat("00", 40), v4, dropForeign, ""},
		{"RFC 3489", "0001 0000 00000000 " + transaction, v4, dropForeign, ""},
		{"success response", "0101 0000 2112a442 " + transaction, v4, dropMessage, ""},
		{"indication", "0011 0000 2112a442 " + transaction, v4, dropMessage, ""},
		{"TURN allocate", "0003 0000 2112a442 " + transaction, v4, dropMessage, ""},
		{"length beyond the end", "0001 0004 2112a442 " + transaction, v4, dropMalformed, ""},
		{"length short of the end", empty + "80220000", v4, dropMalformed, ""},
		{"length not in words", "0001 0003 2112a442 " + transaction + " 000000", v4, dropMalformed, ""},
		{"attribute beyond the end", "0001 0008 2112a442 " + transaction + " 8022 0005 00000000", v4, dropMalformed, ""},
		{"attribute of 65535", "0001 0008 2112a442 " + transaction + " 8022 ffff 00000000", v4, dropMalformed, ""},
		{"wrong fingerprint", "0001 0008 2112a442 " + transaction + " 8028 0004 00000000", v4, dropMalformed, ""},
		{"fingerprint that is not the last attribute", "0001 000c 2112a442 " + transaction + " 8028 0004 00000000 8022 0000", v4, dropMalformed, ""},
		{"fingerprint of another length", "0001 0004 2112a442 " + transaction + " 8028 0000", v4, dropMalformed, ""},
		{"unknown attribute before MESSAGE-INTEGRITY", "0001 001c 2112a442 " + transaction + " 7f01 0000 0008 0014 " + strings.Repeat("00", 20), v4, refuse,
			"0111 0010 2112a442 " + transaction + " 0009 0004 00000414 000a 0002 7f01 0000"},
		{"unknown attribute after MESSAGE-INTEGRITY, which RFC 8489 has ignored", "0001 001c 2112a442 " + transaction + " 0008 0014 " + strings.Repeat("00", 20) + " 7f01 0000", v4, answer,
			"0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"optional attribute of an older STUN", "0001 0004 2112a442 " + transaction + " 8020 0000", v4, answer,
			"0101 000c 2112a442 " + transaction + " 0020 0008 0001 a147 e112a643"},
		{"from port 0", empty, netip.MustParseAddrPort("192.0.2.1:0"), dropMalformed, ""},
		{"from a group", empty, netip.MustParseAddrPort("224.0.0.1:5000"), dropMalformed, ""},
		{"from everybody", empty, netip.MustParseAddrPort("255.255.255.255:5000"), dropMalformed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Server
			got := s.handle(nil, unhex(t, c.in), c.from)
			if !bytes.Equal(got, unhex(t, c.out)) {
				t.Errorf("reply\n %x, want\n %x", got, unhex(t, c.out))
			}
			if s.verdicts[c.want].Load() != 1 {
				t.Errorf("counted as %+v, want verdict %d", s.Stats(), c.want)
			}
		})
	}
}

// start serves a loopback socket and returns its address; the test fails unless Serve returns nil
// when it ends.
func start(t *testing.T, s *Server) *net.UDPAddr {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, pc) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Serve does not return")
		}
		pc.SetDeadline(time.Now().Add(time.Minute))
		if _, err := pc.WriteTo([]byte("x"), pc.LocalAddr()); err != nil {
			t.Errorf("the socket is not the caller's any more: %v", err)
		}
		if _, _, err := pc.ReadFrom(make([]byte, 9)); err != nil {
			t.Errorf("the socket is not the caller's any more: %v", err)
		}
		pc.Close()
	})
	return pc.LocalAddr().(*net.UDPAddr)
}

// Another implementation's client understands the answers.
func TestServeAnotherClient(t *testing.T) {
	var s Server
	c, err := net.DialUDP("udp4", nil, start(t, &s))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	c.Write([]byte("no STUN at all, no answer"))
	for _, setters := range [][]stun.Setter{
		{stun.TransactionID, stun.BindingRequest},
		{stun.TransactionID, stun.BindingRequest, stun.NewSoftware("someone"), stun.Fingerprint},
	} {
		ask := stun.MustBuild(setters...)
		if _, err := c.Write(ask.Raw); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1500)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if over := n - len(ask.Raw); over > 12 {
			t.Errorf("the answer has %d bytes more than the question", over)
		}
		got := &stun.Message{Raw: buf[:n]}
		if err := got.Decode(); err != nil {
			t.Fatal(err)
		}
		var mapped stun.XORMappedAddress
		if err := mapped.GetFrom(got); err != nil {
			t.Fatal(err)
		}
		if got.Type != stun.BindingSuccess || got.TransactionID != ask.TransactionID || mapped.String() != c.LocalAddr().String() {
			t.Errorf("got %v with %v, asked with %v from %v", got, mapped, ask, c.LocalAddr())
		}
		if len(setters) > 2 {
			if err := stun.Fingerprint.Check(got); err != nil {
				t.Errorf("fingerprint: %v", err)
			}
		}
	}
	if got := s.Stats(); got.Answered != 2 || got.Foreign != 1 {
		t.Errorf("counts: %+v", got)
	}
}

func TestServeClosedSocket(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc.Close()
	if err := new(Server).Serve(context.Background(), pc); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}

// No input makes it panic, answer what is no request, or answer with more than an empty request
// gets; what is padded gets no more than its own size.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{
		"0001 0000 2112a442 " + transaction,
		"0001 0008 2112a442 " + transaction + " 7f01 0004 00000000",
		"0001 0008 2112a442 " + transaction + " 8028 0004 00000000",
	} {
		f.Add(unhex(f, s))
	}
	f.Add(unhex(f, "0001 0018 2112a442 "+transaction+" 0026 0014 "+strings.Repeat("aa", 20)))
	f.Add(stun.MustBuild(stun.TransactionID, stun.BindingRequest, stun.NewUsername("a:b"), stun.Fingerprint).Raw)
	from := netip.MustParseAddrPort("[2001:db8::1]:1000")
	f.Fuzz(func(t *testing.T, b []byte) {
		reply := new(Server).handle(nil, b, from)
		if len(reply) > max(len(b), 20+24+8+maxUnknown*2+4) {
			t.Errorf("%d bytes answer %d", len(reply), len(b))
		}
		if len(reply) == 0 {
			return
		}
		m := &stun.Message{Raw: reply}
		if err := m.Decode(); err != nil {
			t.Errorf("the reply %x: %v", reply, err)
		}
	})
}
