package revoked

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func newRoot(t testing.TB) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCRLSign | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return root, key
}

func sample() *List {
	at := time.UnixMilli(1_700_000_000_123)
	return &List{Number: 3, ThisUpdate: time.Unix(1_700_000_001, 0).UTC(),
		Serials: map[string]time.Time{"abc": time.Unix(1_700_000_000, 0).UTC()},
		Holders: map[string]time.Time{"helper sitea/n1": at, "user alice": at.Add(time.Second)}}
}

func TestRoundTrip(t *testing.T) {
	root, key := newRoot(t)
	want := sample()
	der, err := want.Sign(root, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(der, []*x509.Certificate{root})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for n := range der {
		if _, err := Parse(der[:n], []*x509.Certificate{root}); err == nil {
			t.Fatalf("the first %d of %d bytes pass for a list", n, len(der))
		}
	}
}

func TestNamesAndHas(t *testing.T) {
	l := sample()
	at := l.Holders["helper sitea/n1"]
	for _, c := range []struct {
		id       string
		enrolled time.Time
		want     bool
	}{
		{"helper sitea/n1", at.Add(-time.Hour), true},
		{"helper sitea/n1", at, true},
		{"helper sitea/n1", at.Add(time.Millisecond), false}, // enrolled anew
		{"helper sitea/n2", at.Add(-time.Hour), false},
	} {
		if _, got := l.Names(c.id, c.enrolled); got != c.want {
			t.Errorf("%s, enrolled %v after: %v, want %v", c.id, c.enrolled.Sub(at), got, c.want)
		}
	}
	if _, yes := l.Has(big.NewInt(0xabc)); !yes {
		t.Error("the serial is not found")
	}
	if _, yes := l.Has(big.NewInt(0xabd)); yes {
		t.Error("another serial is found")
	}
	var none *List
	if _, yes := none.Names("helper sitea/n1", at); yes {
		t.Error("no list names somebody")
	}
}

func TestSince(t *testing.T) {
	l := sample()
	if got, want := l.Since(nil), []string{"helper sitea/n1", "user alice"}; !slices.Equal(got, want) {
		t.Errorf("since nothing: %q", got)
	}
	older := sample()
	delete(older.Holders, "user alice")
	if got := l.Since(older); !slices.Equal(got, []string{"user alice"}) {
		t.Errorf("since a shorter list: %q", got)
	}
	if got := l.Since(l); len(got) != 0 {
		t.Errorf("since itself: %q", got)
	}
}

func TestStrangersList(t *testing.T) {
	root, _ := newRoot(t)
	other, key := newRoot(t)
	der, err := sample().Sign(other, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(der, []*x509.Certificate{root}); err == nil || !strings.Contains(err.Error(), "did not sign it") {
		t.Errorf("a stranger's list: %v", err)
	}
	unnumbered := sample()
	unnumbered.Number = 0
	der, err = unnumbered.Sign(other, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(der, []*x509.Certificate{other}); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Errorf("a list without a number: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	root, key := newRoot(f)
	der, err := sample().Sign(root, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := Parse(b, []*x509.Certificate{root}); err == nil && l.Number == 0 {
			t.Error("a list without a number")
		}
	})
}
