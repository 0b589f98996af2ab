package ca

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Lists of hosts as Slurm writes them, compared with their expanded elements.
func TestHostLists(t *testing.T) {
	candidates := []string{"", "n", "n0", "n1", "n01", "n2", "n02", "n3", "n9", "n09", "n10", "n11", "n010", "n1-ib", "n2-ib", "gpu3", "gpu3x", "n-1", "n+1", "n1e0"}
	for list, want := range map[string]string{
		"gpu3":             "gpu3",
		"n1,gpu3":          "n1 gpu3",
		"n[1-2]":           "n1 n2",
		"n[01-10]":         "n01 n02 n09 n10",
		"n[9-11]":          "n9 n10 n11",
		"n[1,3],gpu[3]":    "n1 n3 gpu3",
		"n[1-2]-ib,n0":     "n1-ib n2-ib n0",
		"n[01-02,10],gpu3": "n01 n02 n10 gpu3",
		"n[0-1]":           "n0 n1",
	} {
		if err := checkHosts(list); err != nil {
			t.Errorf("%s: %v", list, err)
		}
		for _, host := range candidates {
			if got, is := listsHost(list, host), host != "" && slices.Contains(strings.Fields(want), host); got != is {
				t.Errorf("%s has %q: %v", list, host, got)
			}
		}
	}
	for _, list := range []string{"n[1", "n[]", "n[a]", "n[2-1]", "n[1-2-3]", "n 1", "n1,,n2", "n[1]x[2]", "*", "N1", "a/b", "]n[", "n[1]]"} {
		if checkHosts(list) == nil {
			t.Errorf("%q is taken for a list of hosts", list)
		}
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("n[01-04,7],gpu3", "n02")
	f.Fuzz(func(t *testing.T, list, host string) {
		if listsHost(list, host) && checkHosts(list) != nil {
			t.Errorf("%q is wrong and lists %q", list, host)
		}
	})
}

func TestAllocationsThatAreNone(t *testing.T) {
	authority, _, err := New("tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a    Allocation
		want string
	}{
		{Allocation{"4711", "n[1-4]", "alice"}, ""},
		{Allocation{"x", "n1", "alice"}, `allocation "x": want the batch system's number`},
		{Allocation{"4711", "", "alice"}, "a list of nodes of 0 bytes"},
		{Allocation{"4711", "n1", ""}, "is no user's name"},
		{Allocation{"4711", "n1", "a@b"}, "is no user's name"},
		{Allocation{"4711", "n1", "a%b"}, "a certificate cannot carry"},
		{Allocation{"4711", fmt.Sprintf("n%0600d", 1), "alice"}, "node"},
	} {
		_, err := authority.Token(AllocationToken("sitea", c.a, time.Now().Add(time.Minute)), time.Now())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.a, err, c.want)
		}
	}
}

// A file with anything but one token is refused with its name and what is wrong.
func TestReadTokenFile(t *testing.T) {
	a, _, err := New("tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	token, err := a.Token(Token{Identity: "helper sitea/a1", Expires: time.Now().Add(time.Hour).UnixMilli(), Valid: 60, Uses: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{
		token:                       "",
		"\n " + token + "\r\n":      "",
		"":                          "it is empty",
		token + "\n" + token + "\n": "there are several; keep the newest alone",
		token + " # of node a1":     "there is more than one word",
		token[:len(token)/2]:        "this is not an enrolment token",
		"secret":                    "it does not begin with " + tokenPrefix,
		strings.Repeat("x", 9000):   "it is too long",
		"\x00\xff\xfe":              "it does not begin with",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadTokenFile(file)
		if (err == nil) != (want == "") || err == nil && got != token || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file+": ")) {
			t.Errorf("%.40q: %.40q, %v; want %q", text, got, err, want)
		}
	}
}
