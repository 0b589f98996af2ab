package control_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// parts are the three texts of credentials.
type parts struct{ cert, key, ca []byte }

// issued returns what a CA issues, valid until a time.
func issued(t testing.TB, a *ca.CA, id control.Identity, until time.Time) parts {
	t.Helper()
	cert, key, err := a.Issue(id, until)
	if err != nil {
		t.Fatal(err)
	}
	return parts{cert, key, a.CertPEM()}
}

func newCA(t testing.TB) *ca.CA {
	t.Helper()
	a, _, err := ca.New("test", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Each mistake with the files of credentials is named with the file, what is wrong and what to do, when
// they are loaded and when settings are checked.
func TestFilesOfCredentials(t *testing.T) {
	a, other, soon := newCA(t), newCA(t), time.Now().Add(time.Hour)
	good, second, foreign := issued(t, a, helper, soon), issued(t, a, helper, soon), issued(t, other, helper, soon)
	expired := issued(t, a, helper, time.Now().Add(-2*time.Hour))
	issuer, issuerKey, err := a.MakeIssuer([]control.Role{control.RoleHelper}, soon)
	if err != nil {
		t.Fatal(err)
	}
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")})
	cat := func(texts ...[]byte) []byte { return bytes.Join(texts, nil) }
	const again = "isthmus ca enroll, or isthmus ca issue where the CA is"
	for _, c := range []struct {
		name string
		of   parts
		file string // at which the fault is; "" for none
		want []string
	}{
		{"good", good, "", nil},
		{"one CA in place of another", parts{good.cert, good.key, cat(other.CertPEM(), a.CertPEM())}, "", nil},
		{"the key of another certificate", parts{good.cert, second.key, good.ca}, "key", []string{"it is not the key of the certificate", again}},
		{"no key", parts{good.cert, nil, good.ca}, "key", []string{"the file is empty", again}},
		{"the certificate in place of the key", parts{good.cert, good.cert, good.ca}, "key", []string{`no PEM PRIVATE KEY, but "CERTIFICATE"`, again}},
		{"no PEM in place of the key", parts{good.cert, []byte("secret\n"), good.ca}, "key", []string{"the file holds no PEM PRIVATE KEY", again}},
		{"no certificate", parts{[]byte(" \n"), good.key, good.ca}, "cert", []string{"the file is empty", again}},
		{"the key in place of the certificate", parts{good.key, good.key, good.ca}, "cert", []string{"no PEM CERTIFICATE, but ", again}},
		{"a damaged certificate", parts{damaged, good.key, good.ca}, "cert", []string{"certificate: x509: ", again}},
		{"the CA's certificate first", parts{cat(good.ca, good.cert), good.key, good.ca}, "cert", []string{"carries no Isthmus identity", again}},
		{"another CA's certificate", foreignPair(good, foreign), "cert", []string{"was not issued by this grid's CA", "both must be of one grid", again}},
		{"an expired certificate", parts{expired.cert, expired.key, good.ca}, "cert", []string{"expired at ", "issue a new one"}},
		{"no CA", parts{good.cert, good.key, nil}, "ca", []string{"the file is empty", "ca.pem in the CA's folder"}},
		{"the certificate in place of the CA's", parts{good.cert, good.key, good.cert}, "ca", []string{"it is the certificate of helper sitea/a1", "ca.pem in the CA's folder"}},
		{"another one's certificate in place of the CA's", parts{good.cert, good.key, issued(t, a, frontal, soon).cert}, "ca", []string{"it is the certificate of frontal sitea", "ca.pem"}},
		{"the certificate beside the CA's", parts{good.cert, good.key, cat(good.ca, good.cert)}, "ca", []string{"it is the certificate of helper sitea/a1", "alone"}},
		{"an issuer's in place of the CA's", parts{good.cert, good.key, issuer}, "ca", []string{"one that issues for the CA", "ca.pem"}},
		{"an issuer's", parts{issuer, issuerKey, good.ca}, "cert", []string{"carries no Isthmus identity"}},
		{"the key in place of the CA's", parts{good.cert, good.key, good.key}, "ca", []string{"no PEM CERTIFICATE, but ", "ca.pem"}},
		{"a certificate of another form in place of the CA's", parts{good.cert, good.key, bytes.ReplaceAll(good.ca, []byte(" CERTIFICATE"), []byte(" TRUSTED CERTIFICATE"))}, "ca", []string{`but "TRUSTED CERTIFICATE"`}},
		{"a damaged CA", parts{good.cert, good.key, damaged}, "ca", []string{"CA certificate: x509: "}},
		{"endless", parts{good.cert, good.key, bytes.Repeat([]byte("x"), 2<<20)}, "ca", []string{"more than 1MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			name := func(key string) string { return filepath.Join(dir, key+".pem") }
			for key, text := range map[string][]byte{"cert": c.of.cert, "key": c.of.key, "ca": c.of.ca} {
				if err := os.WriteFile(name(key), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, loaded := control.LoadCredentials(name("cert"), name("key"), name("ca"))
			checked := control.CheckFiles(daemon.Path(name("cert")), daemon.Path(name("key")), daemon.Path(name("ca")), control.OfRole(control.RoleHelper, "sitea"))
			for what, err := range map[string]error{"loaded": loaded, "checked": checked} {
				if (err == nil) != (c.file == "") {
					t.Fatalf("%s: %v", what, err)
				}
				for _, want := range append(c.want, c.file) {
					if err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v; want %q", what, err, want)
					}
				}
				if err != nil && !strings.Contains(err.Error(), name(c.file)) {
					t.Errorf("%s: %v does not name %s", what, err, name(c.file))
				}
			}
			if fault, ok := errors.AsType[daemon.Fault](checked); checked != nil && (!ok || fault.Key != "tls."+c.file) {
				t.Errorf("checked: key %q, want tls.%s", fault.Key, c.file)
			}
		})
	}
}

// foreignPair is another CA's certificate with its key beside this one's CA.
func foreignPair(good, foreign parts) parts { return parts{foreign.cert, foreign.key, good.ca} }

// The certificate must be that of the daemon whose settings name it.
func TestFilesOfAnother(t *testing.T) {
	a, dir := newCA(t), t.TempDir()
	files, err := a.Write(dir, helper, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	check := func(fits func(control.Identity) error) error {
		return control.CheckFiles(daemon.Path(files.Cert), daemon.Path(files.Key), daemon.Path(files.CA), fits)
	}
	for want, fits := range map[string]func(control.Identity) error{
		"": control.OfRole(control.RoleHelper, ""),
		"it is the certificate of helper sitea/a1, and these are the settings of a frontal": control.OfRole(control.RoleFrontal, "sitea"),
		"it is the certificate of helper sitea/a1, and these are the settings of a proxy":   control.OfRole(control.RoleProxy, ""),
		"it is the certificate of helper sitea/a1, and the key site says siteb":             control.OfRole(control.RoleHelper, "siteb"),
	} {
		if err := check(fits); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), files.Cert)) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	// What cannot be read here is left out, and the rest is looked at all the same.
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if err := check(control.OfRole(control.RoleHelper, "")); err != nil {
		t.Errorf("without the key: %v", err)
	}
	if err := check(control.OfRole(control.RoleProxy, "")); err == nil {
		t.Error("without the key nothing was looked at")
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	if err := check(control.OfRole(control.RoleProxy, "")); err != nil {
		t.Errorf("without key and certificate: %v", err)
	}
}

// A peer whose own certificate is trusted as the root, by whatever way, ends no daemon.
func TestLeafAsRoot(t *testing.T) {
	a := newCA(t)
	leaf := issued(t, a, helper, time.Now().Add(time.Hour))
	block, _ := pem.Decode(leaf.cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = control.VerifyByFingerprint([]*x509.Certificate{cert}, control.Fingerprint(cert), time.Now())
	if err == nil || !strings.Contains(err.Error(), "is taken for the CA's") {
		t.Errorf("%v", err)
	}
}

// No text of a file ends the process, and whatever is taken for the CA is a CA.
func FuzzCredentials(f *testing.F) {
	a := newCA(f)
	good := issued(f, a, helper, time.Now().Add(time.Hour))
	f.Add(good.cert, good.key, good.ca)
	f.Add(good.cert, good.key, good.cert)
	f.Add(good.ca, good.key, good.cert)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, []byte{0})
	f.Fuzz(func(t *testing.T, cert, key, root []byte) {
		if c, err := control.NewCredentials(cert, key, root); err == nil && c.Leaf() == nil {
			t.Error("credentials without a certificate")
		}
		roots, err := control.ParseRoots(root)
		if err == nil && len(roots) == 0 {
			t.Error("no error, and no root")
		}
		for _, r := range roots {
			if !r.IsCA {
				t.Errorf("%v is taken for a CA", r.Subject)
			}
		}
	})
}
