package sealed

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The server's first traffic keys of the handshake in RFC 8448, section 3.
func TestKeyVector(t *testing.T) {
	s, err := suiteOf(tls.TLS_AES_128_GCM_SHA256)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := hex.DecodeString("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{"key": "9f02283b6c9c07efc26bb9f2ac92e356", "iv": "cf782b88dd83549aadf1e984"} {
		if got, err := s.expandLabel(secret, label, len(want)/2); err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, %v; want %s", label, got, err, want)
		}
	}
}

// Every suite that crypto/tls may choose seals and opens, also with new keys.
func TestSuites(t *testing.T) {
	for _, known := range tls.CipherSuites() {
		if known.SupportedVersions[len(known.SupportedVersions)-1] != tls.VersionTLS13 {
			continue
		}
		t.Run(known.Name, func(t *testing.T) {
			s, err := suiteOf(known.ID)
			if err != nil {
				t.Fatal(err)
			}
			var seal, open half
			secret := random(1, s.hash().Size())
			if err := seal.init(s, secret); err != nil {
				t.Fatal(err)
			}
			if err := open.init(s, secret); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for n := range 5 {
					data := random(uint64(n), n*100)
					record := seal.appendRecord(nil, typeApplication, &cursor{bufs: [][]byte{data}}, len(data))
					got, kind, _, err := open.open(record, nil)
					if err != nil || kind != typeApplication || !bytes.Equal(got, data) {
						t.Fatalf("%v, %v", kind, err)
					}
				}
				if seal.update() != nil || open.update() != nil {
					t.Fatal("no next keys")
				}
			}
		})
	}
	if _, err := suiteOf(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256); err == nil {
		t.Error("a suite of TLS 1.2 was taken")
	}
}

// A processor without AES makes crypto/tls choose ChaCha20: the tests with crypto/tls as the peer
// run again, in a process that assumes such a processor.
func TestWithoutAES(t *testing.T) {
	if os.Getenv("GODEBUG") == "cpu.aes=off" {
		if a, _ := sealedPair(t); a.CipherSuite() != "TLS_CHACHA20_POLY1305_SHA256" {
			t.Errorf("the suite is %s", a.CipherSuite())
		}
		return
	}
	run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestWithoutAES|TestStandardPeer|TestEarly)$", "-test.v", "-test.timeout=2m")
	run.Env = append(os.Environ(), "GODEBUG=cpu.aes=off")
	out, err := run.Output()
	if err != nil || strings.Count(string(out), "\n--- PASS: ") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
}
