package jobkey

import (
	"bytes"
	"strings"
	"testing"
)

func TestJoint(t *testing.T) {
	k, err := New("port")
	if err != nil {
		t.Fatal(err)
	}
	other, err := New("port")
	if err != nil {
		t.Fatal(err)
	}
	a := k.Joint([]byte("fresh"))
	if a != k.Joint([]byte("fresh")) {
		t.Error("two ends derive different keys")
	}
	for what, b := range map[string]Key{"the port's": k, "another meeting's": k.Joint([]byte("fresher")), "another port's": other.Joint([]byte("fresh"))} {
		if a == b || a.ID() == b.ID() {
			t.Errorf("the key is %s", what)
		}
	}
	if _, err := Parse(a.String()); err != nil {
		t.Error(err)
	}
}

func TestSeal(t *testing.T) {
	k, err := New("job")
	if err != nil {
		t.Fatal(err)
	}
	long, err := New(strings.Repeat("n", 63))
	if err != nil {
		t.Fatal(err)
	}
	sealed := k.Seal(long)
	if len(sealed) != MaxSealed {
		t.Errorf("%d bytes, want %d", len(sealed), MaxSealed)
	}
	if bytes.Equal(sealed, k.Seal(long)) || bytes.Contains(sealed, []byte("nnn")) {
		t.Error("it does not hide")
	}
	if got, err := k.Open(sealed); err != nil || got != long {
		t.Errorf("%v, %v", got.Name, err)
	}
	if _, err := long.Open(sealed); err == nil {
		t.Error("another key opens it")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := k.Open(changed); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
		if _, err := k.Open(sealed[:i]); err == nil {
			t.Errorf("%d bytes of it are enough", i)
		}
	}
}

// The example of docs/protocol.md.
func TestJointExample(t *testing.T) {
	port, err := Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	nonces := make([]byte, 64)
	for i := range nonces {
		nonces[i] = byte(i)
	}
	const text, id = "demo:gW8ZdfIeglTqdC_VQHkgfg9f_wJJEWA7qh7hNdGazt0", "demo-a74126acd3c8fbaac1a385404c802829"
	if k := port.Joint(nonces); k.String() != text || k.ID() != id {
		t.Errorf("%v, %s", k, k.ID())
	}
}
