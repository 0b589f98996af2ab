package marks

import (
	"bytes"
	"fmt"
	"testing"
)

// A stream comes out as it was, and the marks at their places, however it is cut.
func TestReader(t *testing.T) {
	const secret = "k7"
	a, b := Mark{Saved, ID{1, 0xab}}, Mark{Loaded, ID{2}}
	var stream bytes.Buffer
	put := func(text string, marks ...Mark) {
		stream.WriteString(text)
		for _, m := range marks {
			if err := Write(&stream, secret, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("one\x1b", a, b)
	put("\x1b_isthmus:other:", a)
	put("two\x1b_isthmus:k")
	want := fmt.Sprintf("one\x1b%v%v\x1b_isthmus:other:%vtwo\x1b_isthmus:k", a, b, a)
	for size := 1; size <= stream.Len(); size++ {
		r := NewReader(secret)
		var got bytes.Buffer
		for data := stream.Bytes(); len(data) > 0; data = data[min(size, len(data)):] {
			r.Read(data[:min(size, len(data))], func(p []byte) { got.Write(p) }, func(m Mark) { fmt.Fprint(&got, m) })
		}
		got.Write(r.End())
		if got.String() != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, got.String(), want)
		}
	}
}

func TestSecrets(t *testing.T) {
	secret, id := NewSecret(), NewID()
	if ProcessID(77).Number() != 77 {
		t.Error("another process")
	}
	if secret == NewSecret() || id == NewID() {
		t.Error("the same twice")
	}
}
