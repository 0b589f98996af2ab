package grant

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	job   = overlay.JobID("demo-00112233445566778899aabbccddeeff")
	other = overlay.JobID("demo-ffeeddccbbaa99887766554433221100")
)

var now = time.Unix(1_700_000_000, 0)

// certificate is a self-signed one: the tests' holder decides whose it is.
func certificate(t testing.TB, key crypto.Signer) [][]byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{der}
}

func alice([][]byte) (Holder, error) {
	return Holder{User: "alice", Projects: []string{"climate", "fusion"}}, nil
}

func claims() Claims {
	return Claims{Job: job, Project: "climate", Issued: now, Expires: now.Add(12 * time.Hour)}
}

func issue(t testing.TB, c Claims, chain [][]byte, key crypto.Signer) []byte {
	t.Helper()
	b, err := Issue(c, chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keys(t testing.TB) map[string]crypto.Signer {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"ed25519": edwards, "ecdsa": curve}
}

func TestJudge(t *testing.T) {
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			chain := certificate(t, key)
			good := issue(t, claims(), chain, key)
			thief := keys(t)[name]
			judge := func(b []byte, job overlay.JobID, now time.Time, holder func([][]byte) (Holder, error)) (overlay.Principal, error) {
				t.Helper()
				text := Text(b)
				if b, err := FromText(" " + text + "\n"); err != nil || Text(b) != text {
					t.Fatalf("%q, %v", b, err)
				}
				g, err := Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				return g.Judge(job, now, holder)
			}
			for _, tc := range []struct {
				what   string
				grant  []byte
				job    overlay.JobID
				now    time.Time
				holder func([][]byte) (Holder, error)
				want   overlay.Principal
				fault  string
			}{
				{"good", good, job, now, alice, overlay.Principal{User: "alice", Project: "climate"}, ""},
				{"without a project", issue(t, Claims{Job: job, Issued: now, Expires: now.Add(time.Hour)}, chain, key), job, now, alice, overlay.Principal{User: "alice"}, ""},
				{"the last instant", good, job, now.Add(12*time.Hour - 1), alice, overlay.Principal{User: "alice", Project: "climate"}, ""},
				{"by a fast clock", good, job, now.Add(-overlay.MaxAhead), alice, overlay.Principal{User: "alice", Project: "climate"}, ""},
				{"of another job", good, other, now, alice, overlay.Principal{}, "it is for job " + string(job) + ", not for " + string(other)},
				{"expired", good, job, now.Add(12 * time.Hour), alice, overlay.Principal{User: "alice", Project: "climate"}, "the grant of alice for climate expired at 2023-11-15T10:13:20Z; make a new one"},
				{"of the future", good, job, now.Add(-overlay.MaxAhead - time.Second), alice, overlay.Principal{}, "it is not valid before 2023-11-14T22:13:20Z"},
				{"signed by another key", issue(t, claims(), chain, thief), job, now, alice, overlay.Principal{}, "it is forged"},
				{"another's project", issue(t, Claims{Job: job, Project: "secret", Issued: now, Expires: now.Add(time.Hour)}, chain, key), job, now, alice, overlay.Principal{}, `the certificate of user alice does not name project secret; it names ["climate" "fusion"]`},
				{"to outlive its certificate", issue(t, Claims{Job: job, Issued: now, Expires: now.Add(25 * time.Hour)}, chain, key), job, now, alice, overlay.Principal{}, "it is to outlive its certificate, which ends at 2023-11-15T22:13:20Z"},
				{"a bad chain", good, job, now, func([][]byte) (Holder, error) { return Holder{}, errors.New("not of this grid") }, overlay.Principal{}, "the grant is not good: not of this grid"},
			} {
				got, err := judge(tc.grant, tc.job, tc.now, tc.holder)
				if got != tc.want || (err == nil) != (tc.fault == "") {
					t.Errorf("%s: %v, %v", tc.what, got, err)
				}
				if err != nil && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), tc.fault) || errors.Is(err, ErrExpired) != (tc.what == "expired")) {
					t.Errorf("%s: %v, want %q", tc.what, err, tc.fault)
				}
			}
			// No bit can be changed: the form, the certificate or the signature reveals it.
			for i := range good {
				bad := bytes.Clone(good)
				bad[i] ^= 1
				g, err := Parse(bad)
				if err != nil {
					continue
				}
				if p, err := g.Judge(job, now, func(chain [][]byte) (Holder, error) {
					if !bytes.Equal(chain[0], certificateOf(good)) {
						return Holder{}, errors.New("not of this grid")
					}
					return alice(chain)
				}); err == nil {
					t.Fatalf("byte %d changed, and it still is good for %v", i, p)
				}
			}
		})
	}
}

func certificateOf(grant []byte) []byte {
	g, err := Parse(grant)
	if err != nil {
		return nil
	}
	return g.chain[0]
}

func TestIssueRefuses(t *testing.T) {
	key := keys(t)["ecdsa"]
	chain := certificate(t, key)
	change := func(f func(*Claims)) Claims { c := claims(); f(&c); return c }
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		claims Claims
		chain  [][]byte
		key    crypto.Signer
		fault  string
	}{
		{change(func(c *Claims) { c.Job = "demo" }), chain, key, "job id"},
		{change(func(c *Claims) { c.Project = "a b" }), chain, key, "project name"},
		{change(func(c *Claims) { c.Expires = now }), chain, key, "want more than 0"},
		{change(func(c *Claims) { c.Expires = now.Add(MaxLife + time.Second) }), chain, key, "at most 744h0m0s"},
		{claims(), nil, key, "a chain of 0 certificates"},
		{claims(), [][]byte{make([]byte, wire.MaxGrant)}, key, "at most 4000 fit"},
		{claims(), chain, long, "want ECDSA or Ed25519"},
	} {
		if _, err := Issue(tc.claims, tc.chain, tc.key); err == nil || !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("%v, want %q", err, tc.fault)
		}
	}
}

// golden is a grant with a certificate of three bytes.
const golden = "01" + "25" + "64656d6f2d3030313132323333343435353636373738383939616162626363646465656666" + "07" + "636c696d617465" +
	"000000006553f100" + "00000000655499c0" + "01" + "0003" + "aabbcc" + "02" + "ddee"

func TestGolden(t *testing.T) {
	b, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(b)
	if err != nil || g.Claims != claims() || hex.EncodeToString(g.chain[0]) != "aabbcc" || hex.EncodeToString(g.signature) != "ddee" || !bytes.Equal(g.signed, b[:len(b)-3]) {
		t.Fatalf("%+v, %v", g, err)
	}
	for n := range b {
		if _, err := Parse(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken", n, len(b))
		}
	}
	if _, err := Parse(append(b, 0)); err == nil {
		t.Error("a byte too many was taken")
	}
	if _, err := Parse(make([]byte, wire.MaxGrant+1)); err == nil || !strings.Contains(err.Error(), "at most 4000") {
		t.Error(err)
	}
	b[0] = 2
	if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), "version 2, this side knows 1") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	b, _ := hex.DecodeString(golden)
	f.Add(b)
	key := keys(f)["ed25519"]
	f.Add(issue(f, claims(), certificate(f, key), key))
	f.Fuzz(func(t *testing.T, in []byte) {
		g, err := Parse(in)
		if err != nil {
			return
		}
		if !bytes.HasPrefix(in, g.signed) || len(g.chain) == 0 || g.Check() != nil {
			t.Fatalf("%x was read as %+v", in, g)
		}
		g.Judge(g.Job, now, alice)
	})
}
