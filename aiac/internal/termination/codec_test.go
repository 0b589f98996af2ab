package termination

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
)

func TestMessages(t *testing.T) {
	r := register.New(3)
	lost := r.Lost(1, 1).Replaced(1, 3)
	for _, c := range []struct {
		m    Message
		want string
	}{
		{Message{Kind: News, View: lost}, "01" + "010106"},
		{Message{Kind: Ready, View: r, Round: 300, Ready: true}, "02" + "00" + "ac02" + "01"},
		{Message{Kind: Freeze, View: r, Round: 1}, "03" + "00" + "01"},
		{Message{Kind: Block, View: lost, Round: 2}, "04" + "010106" + "02"},
		{Message{Kind: Part, View: r, Round: 1, Residual: .5}, "05" + "00" + "01" + "3fe0000000000000"},
		{Message{Kind: Resume, View: r, Round: 1}, "06" + "00" + "01"},
		{Message{Kind: Done, View: lost, Round: 1, Residual: 1, Decided: r}, "07" + "010106" + "01" + "3ff0000000000000" + "00"},
	} {
		b := c.m.Append(nil)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%v: encoded as %s, want %s", c.m.Kind, got, c.want)
		}
		m, after, err := Parse(append(b, 9), 3)
		if err != nil || !reflect.DeepEqual(m, c.m) || !bytes.Equal(after, []byte{9}) {
			t.Errorf("%x: read as %v, followed by %x, %v; want %v", b, m, after, err, c.m)
		}
		for n := range b {
			if m, _, err := Parse(b[:n], 3); err == nil {
				t.Errorf("the first %d bytes of %x are %v", n, b, m)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	r := register.New(3)
	for k := News; k <= Done; k++ {
		f.Add(Message{Kind: k, View: r.Lost(2, 2), Round: 7, Residual: 1, Decided: r}.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, after, err := Parse(b, 3)
		if err == nil && !bytes.Equal(append(m.Append(nil), after...), b) {
			t.Fatalf("%x is read as %v, which is encoded as %x", b, m, m.Append(nil))
		}
	})
}
