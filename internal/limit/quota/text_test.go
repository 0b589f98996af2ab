package quota

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestRateText(t *testing.T) {
	for text, want := range map[string]Rate{
		"none": 0, "100Mbit/s": 1e8, "1.5 Gbit/s": 15e8, "64kbit/s": 64000, "1bit/s": 1,
	} {
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want {
			t.Errorf("%s: %d, %v; want %d", text, r, err, want)
		}
		var again Rate
		if err := again.UnmarshalText([]byte(r.String())); err != nil || again != r {
			t.Errorf("%d is written %s, which reads as %d, %v", r, r, again, err)
		}
	}
	for _, text := range []string{"", "100", "100MB/s", "-1Mbit/s", "1e3Mbit/s", "0Mbit/s", "NaNMbit/s", "9999999Gbit/s", "Mbit/s", "1.2.3kbit/s"} {
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %v", text, r)
		}
	}
}

func TestLedgerText(t *testing.T) {
	l := NewLedger()
	l.Add("alice", "p", 7, noon)
	l.Add("bob", "", 9, noon)
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{"version":1,"month":"2026-11","users":{"alice":7,"bob":9},"projects":{"p":7}}`
	if string(text) != golden {
		t.Errorf("stored as %s, want %s", text, golden)
	}
	again := NewLedger()
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	if again.User("alice", noon) != 7 || again.Project("p", noon) != 7 {
		t.Errorf("read back: %+v", again)
	}
	if n := again.User("alice", noon.AddDate(0, 1, 0)); n != 0 {
		t.Errorf("in December alice has %d bytes of November", n)
	}
	again.Add("alice", "", 1, noon.AddDate(0, -1, 0)) // a clock that was set back
	if n := again.User("alice", noon); n != 8 {
		t.Errorf("after the clock went back alice has %d bytes, want 8", n)
	}
	for _, bad := range []string{`{"version":2}`, `{"version":1,"month":"soon"}`, `[]`, `{"version":1,"users":{"a":-1}}`} {
		if err := json.Unmarshal([]byte(bad), NewLedger()); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// The names are bounded; further ones are counted all the same.
func TestLedgerIsBounded(t *testing.T) {
	l := NewLedger()
	for i := range maxNames + 10 {
		l.Add(fmt.Sprint("u", i), "", 1, noon)
	}
	if l.users.Len() > maxNames+1 {
		t.Errorf("%d names", l.users.Len())
	}
	if n := l.User("u70000", noon); n != 10 {
		t.Errorf("a name too many has %d bytes, want those of all of them, 10", n)
	}
}

func FuzzLedger(f *testing.F) {
	f.Add(`{"version":1,"month":"2026-11","users":{"alice":7},"projects":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		l := NewLedger()
		if json.Unmarshal([]byte(text), l) != nil {
			return
		}
		l.Add("alice", "p", 1, noon)
		if _, err := json.Marshal(l); err != nil {
			t.Error(err)
		}
	})
}

func FuzzRate(f *testing.F) {
	f.Add("100Mbit/s")
	f.Fuzz(func(t *testing.T, text string) {
		var r, again Rate
		if r.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(r.String())); err != nil || again != r || strings.Contains(r.String(), " ") {
			t.Errorf("%q is %d, written %s, read as %d, %v", text, r, r, again, err)
		}
	})
}
