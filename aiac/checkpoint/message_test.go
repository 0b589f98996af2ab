package checkpoint

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

// golden are messages of every kind and their bytes.
var golden = []struct {
	m    message
	want string
}{
	{message{kind: kindPut, iteration: 300, length: 5, sum: 0x0102030405060708, offset: 2, data: []byte("xy")}, "01" + "ac02" + "05" + "0807060504030201" + "02" + "7879"},
	{message{kind: kindTaken, iteration: 1, offset: 128}, "02" + "01" + "8001"},
	{message{kind: kindAsk, fetch: 7, task: 12}, "03" + "07" + "0c"},
	{message{kind: kindNone, fetch: 7}, "04" + "07"},
	{message{kind: kindOffer, fetch: 7, iteration: 9, length: 1 << 20, sum: 1}, "05" + "07" + "09" + "808040" + "0100000000000000"},
	{message{kind: kindGet, fetch: 7, task: 12, iteration: 9, sum: 1, offset: 0}, "06" + "07" + "0c" + "09" + "0100000000000000" + "00"},
	{message{kind: kindData, fetch: 7, offset: 3, data: []byte{255}}, "07" + "07" + "03" + "ff"},
	{message{kind: kindHello, data: []byte{1, 's', 2, 'n', '1'}}, "08" + "0173" + "026e31"},
}

func TestMessages(t *testing.T) {
	for _, c := range golden {
		b := c.m.append(nil)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%+v is encoded as %s, want %s", c.m, got, c.want)
		}
		if got, err := parse(b); err != nil || !reflect.DeepEqual(got, c.m) {
			t.Errorf("%x is read as %+v, %v; want %+v", b, got, err, c.m)
		}
		for n := range len(b) - len(c.m.data) {
			if _, err := parse(b[:n]); !errors.Is(err, errShort) {
				t.Errorf("the first %d bytes of %x: %v, want %v", n, b, err, errShort)
			}
		}
		if c.m.data != nil {
			continue
		}
		if _, err := parse(append(b, 0)); !errors.Is(err, errLong) {
			t.Errorf("%x and another byte: %v, want %v", b, err, errLong)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"00", "09", "048000", "04ffffffffffffffffff7f"} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := parse(b); !errors.Is(err, errValue) {
			t.Errorf("%s is read as %+v, %v", text, m, err)
		}
	}
}

// The hash of a state depends on all that it is known by.
func TestIdentity(t *testing.T) {
	s := State{Task: 3, Iteration: 1000, Data: []byte("state")}
	want := identity{3, 1000, 5, 0xaae1d9efc875d3ad}
	if got := identify(s); got != want {
		t.Errorf("the identity is %+v with sum %#x, want %#x", got, got.sum, want.sum)
	}
	for _, other := range []State{{4, 1000, s.Data}, {3, 1001, s.Data}, {3, 1000, []byte("statf")}, {3, 1000, []byte("stat")}} {
		if identify(other).sum == want.sum {
			t.Errorf("%+v has the same sum", other)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range golden {
		f.Add(c.m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parse(b); err == nil && !bytes.Equal(m.append(nil), b) {
			t.Fatalf("%x is read as %+v, which is encoded as %x", b, m, m.append(nil))
		}
	})
}
