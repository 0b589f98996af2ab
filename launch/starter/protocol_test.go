package starter

import (
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

var question = request{Do: doStart, Name: "0123456789abcdef", Identity: "alice@a/n1", Folder: "/jobs", Memory: 1, CPU: 2}

// A request is decoded as it was encoded, and no prefix of the line is accepted.
func TestQuestions(t *testing.T) {
	line, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(line); err != nil || got != question {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range len(line) {
		if _, err := decode(line[:n]); err == nil {
			t.Errorf("%q passes for a question", line[:n])
		}
	}
	for what, change := range map[string]func(*request){
		"no name": func(r *request) { r.Name = "" }, "a path as name": func(r *request) { r.Name = "../../etc/passwd" },
		"no identity": func(r *request) { r.Identity = "" }, "a pattern": func(r *request) { r.Identity = "*@a/n1" },
		"no node": func(r *request) { r.Identity = "alice@a" }, "a relative folder": func(r *request) { r.Folder = "jobs" },
		"a negative bound": func(r *request) { r.Memory = -1 }, "another deed": func(r *request) { r.Do = "exec" },
	} {
		bad := question
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// A read that fails, as one does whose time is over, is an error for the helper that waits for an answer, and for the starter.
func TestFailedRead(t *testing.T) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	peer.Close() // with something unread: a reset
	if _, _, err := readLine(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	line, _ := json.Marshal(question)
	f.Add(line)
	f.Add([]byte(`{"do":"kill","name":"0123456789abcdef"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decode(b); err == nil && r.check() != nil {
			t.Errorf("%q", b)
		}
	})
}
