package jobkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func mustKey(t *testing.T, name string) Key {
	t.Helper()
	k, err := New(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustCertificates(t *testing.T, k Key, rank uint32, life overlay.Generation, now func() time.Time) *Certificates {
	t.Helper()
	c, err := k.CertificatesBy(now, rank, life)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func chainOf(t *testing.T, c *Certificates) [][]byte {
	t.Helper()
	cert, err := c.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return cert.Certificate
}

// Two processes that share only the key authenticate each other.
func TestMembers(t *testing.T) {
	k := mustKey(t, "demo")
	a := mustCertificates(t, k, 3, 7, time.Now)
	b := mustCertificates(t, k, 4, 0, time.Now)
	got, err := b.Verify(chainOf(t, a))
	if want := (Member{overlay.ProcessName{Job: k.ID(), Rank: 3}, 7}); err != nil || got != want || got != a.Self() {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if !bytes.Equal(a.authority.Raw, b.authority.Raw) {
		t.Error("the two derive different authorities")
	}
}

// The authority of a fixed key must never change: different builds take part in one job.
func TestAuthorityVector(t *testing.T) {
	k, err := Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	c := mustCertificates(t, k, 0, 0, time.Now)
	sum := sha256.Sum256(c.authority.RawSubjectPublicKeyInfo)
	if got, want := hex.EncodeToString(sum[:8]), "646487a8bc65f307"; got != want {
		t.Errorf("authority's public key has digest %s, want %s", got, want)
	}
}

func TestStrangers(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	k := mustKey(t, "demo")
	us := mustCertificates(t, k, 0, 0, clock)
	sameName := mustCertificates(t, mustKey(t, "demo"), 1, 0, clock)
	past := mustCertificates(t, k, 1, 0, func() time.Time { return now.Add(-certificateLife - time.Minute) })
	future := mustCertificates(t, k, 1, 0, func() time.Time { return now.Add(ClockSlack + time.Minute) })

	// An outsider that writes our job's name into its certificate.
	forger := mustCertificates(t, mustKey(t, "demo"), 1, 0, clock)
	forger.self.Process.Job = k.ID()
	forger.own = nil

	for name, c := range map[string]struct {
		chain [][]byte
		fault string
	}{
		"none":               {nil, "no certificate"},
		"rubbish":            {[][]byte{{1, 2, 3}}, "cannot be read"},
		"job of same name":   {chainOf(t, sameName), "this process belongs to job"},
		"forged job":         {chainOf(t, forger), "not made with this job's key"},
		"expired":            {chainOf(t, past), "expired at"},
		"not yet":            {chainOf(t, future), "not valid before"},
		"authority itself":   {[][]byte{us.authority.Raw}, "does not name one process"},
		"signed by a member": {signedByMember(t, us), "not made with this job's key"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := us.Verify(c.chain)
			if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), c.fault) || m != (Member{}) {
				t.Errorf("%v, %v; want ErrForbidden and %q", m, err, c.fault)
			}
		})
	}
}

// signedByMember returns a chain in which a member's certificate signs another.
func signedByMember(t *testing.T, c *Certificates) [][]byte {
	t.Helper()
	parent, err := c.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	member, err := x509.ParseCertificate(parent.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	der := sign(t, []string{Member{Process: overlay.ProcessName{Job: c.self.Process.Job, Rank: 9}}.uri()}, member, parent.PrivateKey.(ed25519.PrivateKey))
	return [][]byte{der, parent.Certificate[0]}
}

func sign(t *testing.T, names []string, parent *x509.Certificate, key ed25519.PrivateKey) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, n := range names {
		u, err := url.Parse(n)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Names that the authority would never sign are refused nevertheless.
func TestNames(t *testing.T) {
	k := mustKey(t, "demo")
	c := mustCertificates(t, k, 0, 0, time.Now)
	good := Member{Process: overlay.ProcessName{Job: k.ID(), Rank: 5}, Generation: 1}.uri()
	if m, err := c.Verify([][]byte{sign(t, []string{good}, c.authority, c.signer)}); err != nil || m.Process.Rank != 5 {
		t.Fatalf("%v, %v", m, err)
	}
	job := string(k.ID())
	for _, names := range [][]string{
		{}, {good, good}, {"isthmus:helper/sitea/a1"}, {"https://example.org/"},
		{"isthmus:process/" + job}, {"isthmus:process/" + job + "/1"}, {"isthmus:process/" + job + "/1/2/3"},
		{"isthmus:process/" + job + "/01/2"}, {"isthmus:process/" + job + "/4294967296/0"}, {"isthmus:process/" + job + "/1/-1"},
		{"isthmus:process/" + job + "/1/18446744073709551616"}, {"isthmus:process/demo/1/0"}, {"isthmus:process//1/0"}, {good + "?x=1"},
	} {
		if m, err := c.Verify([][]byte{sign(t, names, c.authority, c.signer)}); err == nil {
			t.Errorf("%q was taken for %v", names, m)
		}
	}
}

func TestRenewal(t *testing.T) {
	now := time.Now()
	c := mustCertificates(t, mustKey(t, "demo"), 0, 0, func() time.Time { return now })
	first := chainOf(t, c)[0]
	now = now.Add(certificateLife/2 - time.Second)
	if !bytes.Equal(first, chainOf(t, c)[0]) {
		t.Error("renewed too early")
	}
	now = now.Add(2 * time.Second)
	if bytes.Equal(first, chainOf(t, c)[0]) {
		t.Error("not renewed when half its life was over")
	}
}
