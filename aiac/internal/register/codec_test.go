package register

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func TestEncoding(t *testing.T) {
	r := New(300).Lost(7, 7).Replaced(7, 300).Lost(299, 299)
	for _, c := range []struct {
		r    Register
		want string
	}{
		{New(300), "00"},
		{r, "02" + "07d804" + "ab02d704"},
	} {
		b := c.r.Append(nil)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%v is encoded as %s, want %s", c.r, got, c.want)
		}
		got, after, err := Parse(append(b, 9), 300)
		if err != nil || !got.Equal(c.r) || !bytes.Equal(after, []byte{9}) {
			t.Errorf("read as %v, followed by %v, %v", got, after, err)
		}
		for n := range b {
			if _, _, err := Parse(b[:n], 300); err == nil {
				t.Errorf("the first %d bytes of %x are a register", n, b)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		bytes string
		want  error
	}{
		{"04", errOrder},             // more tasks than there are
		{"010308", errOrder},         // task 3 of 3
		{"0202060108", errOrder},     // task 1 after task 2
		{"010102", errState},         // as it begins: not the only encoding
		{"010101", errState},         // older than that
		{"01018080808020", errState}, // process 2^32
		{"010104", errTwice},         // task 1 in the process of task 2
		{"01018800", errLong},
		{"8000", errLong},
	} {
		b, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Parse(b, 3); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.bytes, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{0})
	f.Add(New(3).Lost(0, 0).Replaced(0, 3).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, after, err := Parse(b, 3)
		if err == nil && !bytes.Equal(append(r.Append(nil), after...), b) {
			t.Fatalf("%x is read as %v, which is encoded as %x", b, r, r.Append(nil))
		}
	})
}
