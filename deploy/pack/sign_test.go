package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// newKey writes a private key, protected by a passphrase unless that is empty, and its public part.
func newKey(t *testing.T, dir, passphrase string) (private, public string) {
	t.Helper()
	e, err := openpgp.NewEntity("Isthmus", "test", "isthmus@example.org", nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, body []byte) string {
		t.Helper()
		var text bytes.Buffer
		w, err := armor.Encode(&text, kind, nil)
		if err == nil {
			_, err = w.Write(body)
		}
		if err == nil {
			err = w.Close()
		}
		name = filepath.Join(dir, name)
		if err == nil {
			err = os.WriteFile(name, text.Bytes(), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	var body bytes.Buffer
	if err := e.Serialize(&body); err != nil {
		t.Fatal(err)
	}
	public = write("public.asc", openpgp.PublicKeyType, body.Bytes())
	body.Reset()
	if passphrase != "" {
		if err := e.EncryptPrivateKeys([]byte(passphrase), nil); err != nil {
			t.Fatal(err)
		}
		err = e.SerializePrivateWithoutSigning(&body, nil)
	} else {
		err = e.SerializePrivate(&body, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return write("private.asc", openpgp.PrivateKeyType, body.Bytes()), public
}

// The checksums are those that sha256sum knows, and who has the public key can tell whether somebody has
// changed them.
func TestSums(t *testing.T) {
	for _, passphrase := range []string{"", "open sesame"} {
		dir := t.TempDir()
		private, public := newKey(t, dir, passphrase)
		t.Setenv(envPassphrase, passphrase)
		k, err := readKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"b": "", "a": "abc"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := writeSums(dir, []string{"b", "a"}, k, time.Now()); err != nil || strings.Join(got, " ") != "SHA256SUMS SHA256SUMS.asc" {
			t.Fatal(got, err)
		}
		sums, err := os.ReadFile(filepath.Join(dir, sumsName))
		const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n" + // FIPS 180-4, B.1
			"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
		if err != nil || string(sums) != want {
			t.Fatalf("%q, %v", sums, err)
		}
		keys, err := os.Open(public)
		if err != nil {
			t.Fatal(err)
		}
		defer keys.Close()
		ring, err := openpgp.ReadArmoredKeyRing(keys)
		if err != nil {
			t.Fatal(err)
		}
		check := func(text []byte) error {
			sig, err := os.Open(filepath.Join(dir, sumsName+".asc"))
			if err != nil {
				t.Fatal(err)
			}
			defer sig.Close()
			_, err = openpgp.CheckArmoredDetachedSignature(ring, bytes.NewReader(text), sig, nil)
			return err
		}
		if err := check(sums); err != nil {
			t.Error(err)
		}
		sums[0] ^= 1
		if check(sums) == nil {
			t.Error("changed checksums have a good signature")
		}
		if got, err := writeSums(dir, []string{"a"}, nil, time.Now()); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, sumsName+".asc")); err == nil {
			t.Error("the signature of other checksums is left")
		}
	}
}

// What is wrong with a key is said, with its file.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	private, public := newKey(t, dir, "open sesame")
	t.Setenv(envPassphrase, "guess")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file", empty: "gpg --armor --export-secret-keys",
		public: "a public key", private: "is protected, and the passphrase in ISTHMUS_KEY_PASSPHRASE does not fit",
	} {
		if _, err := readKey(file); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
