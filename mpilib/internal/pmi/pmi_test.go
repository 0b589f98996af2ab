package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// A manager answers the lines that it gets with those of a script, in which "" closes the connection.
func manager(t *testing.T, script ...string) (conn net.Conn, got func() []string) {
	a, b := net.Pipe()
	var lines []string
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer b.Close()
		in := bufio.NewScanner(b)
		for _, answer := range script {
			if !in.Scan() {
				return
			}
			lines = append(lines, in.Text())
			if answer == "" {
				return
			}
			fmt.Fprintln(b, answer)
		}
		if in.Scan() { // what has no answer
			lines = append(lines, in.Text())
		}
	}()
	t.Cleanup(func() { a.Close(); <-over })
	return a, func() []string { a.Close(); <-over; return lines }
}

var greeting = []string{"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", "cmd=my_kvsname kvsname=kvs_7"}

// The lines are those of PMI-1, as Hydra has them.
func TestLines(t *testing.T) {
	conn, got := manager(t, append(greeting, "cmd=put_result rc=0 msg=success", "cmd=barrier_out", "cmd=get_result rc=0 msg=success value=a=b", "cmd=finalize_ack")...)
	c, err := newClient(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	ctx := t.Context()
	err = errors.Join(c.Put(ctx, "x", "a=b"), c.Barrier(ctx))
	if err == nil {
		text, err = c.Get(ctx, "x", 0)
	}
	if err := errors.Join(err, c.Close(ctx)); err != nil || text != "a=b" {
		t.Errorf("%q, %v", text, err)
	}
	want := []string{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_my_kvsname", "cmd=put kvsname=kvs_7 key=x value=a=b", "cmd=barrier_in", "cmd=get kvsname=kvs_7 key=x", "cmd=finalize"}
	if got := strings.Join(got(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("sent\n%s", got)
	}
}

func TestWrongAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"":                              "no answer to cmd=get",
		"cmd=get_result rc=-1 msg=none": "cmd=get was refused",
		"cmd=get_result rc=x value=a":   "cmd=get was refused",
		"cmd=get_result rc=0":           "the answer to cmd=get has no value",
		"cmd=put_result rc=0 value=a":   "cmd=get was answered with",
		"hello":                         "cmd=get was answered with",
		"cmd=get_result value=" + strings.Repeat("a", maxLine): "no answer to cmd=get",
	} {
		conn, _ := manager(t, append(greeting, answer)...)
		c, err := newClient(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := c.Get(t.Context(), "x", 0); !errors.Is(err, ErrManager) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.20q, %v", answer, text, err)
		}
	}
}

// A process that aborts the job waits for no answer.
func TestAbort(t *testing.T) {
	conn, got := manager(t, greeting...)
	c, err := newClient(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Abort(7); err != nil {
		t.Error(err)
	}
	if lines := got(); len(lines) != 3 || lines[2] != "cmd=abort exitcode=7" {
		t.Errorf("sent %q", lines)
	}
}

// A manager that never answers is not waited for after the context has ended.
func TestSilentManager(t *testing.T) {
	conn, other := net.Pipe()
	defer other.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := newClient(ctx, conn); !errors.Is(err, ErrManager) {
		t.Error(err)
	}
}
