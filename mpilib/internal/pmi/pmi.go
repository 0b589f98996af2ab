// Package pmi is a client of the process manager that has started this process, by version 1 of PMI as
// Hydra (MPICH's mpiexec) and others serve it: lines of text on a descriptor that the process inherits.
// The processes of a job put texts into a table, and get those of others after a barrier.
package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// EnvFD is the environment variable that has the number of the descriptor.
const EnvFD = "PMI_FD"

// ErrManager is the error of a process manager that does not answer as it should.
var ErrManager = errors.New("the process manager that started this process")

// Client is a connection to the process manager. It is not safe for concurrent use, but for Abort. The process manager ends the job if the process
// ends without Close.
type Client struct {
	conn  net.Conn
	lines *bufio.Reader
	table string // name of the job's table
}

// Dial greets the process manager at an inherited descriptor, which belongs to the client from now on. The caller calls Close.
func Dial(ctx context.Context, fd int) (*Client, error) {
	f := os.NewFile(uintptr(fd), "PMI")
	if f == nil {
		return nil, fmt.Errorf("%w: %s=%d is no descriptor", ErrManager, EnvFD, fd)
	}
	conn, err := net.FileConn(f)
	f.Close() // FileConn has a copy
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%d: %w", ErrManager, EnvFD, fd, err)
	}
	return newClient(ctx, conn)
}

func newClient(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, lines: bufio.NewReaderSize(conn, maxLine)}
	_, err := c.ask(ctx, "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", "")
	if err == nil {
		c.table, err = c.ask(ctx, "cmd=get_my_kvsname", "my_kvsname", "kvsname")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// maxLine bounds an answer, in bytes. Process managers use 1 KiB.
const maxLine = 64 << 10

// Put puts a text into the job's table, once for each name. Neither may have spaces or be long: names 64 bytes, texts 1023.
func (c *Client) Put(ctx context.Context, name, text string) error {
	_, err := c.ask(ctx, "cmd=put kvsname="+c.table+" key="+name+" value="+text, "put_result", "")
	return err
}

// Get returns a text that any process has put before the last barrier.
func (c *Client) Get(ctx context.Context, name string, _ int) (string, error) {
	return c.ask(ctx, "cmd=get kvsname="+c.table+" key="+name, "get_result", "value")
}

// Barrier returns when all processes of the job have called it.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "cmd=barrier_in", "barrier_out", "")
	return err
}

// Close tells the process manager that this process needs it no more. The process may then exit with any status, as one that never
// greeted it may.
func (c *Client) Close(ctx context.Context) error {
	_, err := c.ask(ctx, "cmd=finalize", "finalize_ack", "")
	return errors.Join(err, c.conn.Close())
}

// Abort has the process manager end all processes of the job, this one included, and report a status. There is no answer.
func (c *Client) Abort(status int) error {
	c.conn.SetWriteDeadline(time.Now().Add(maxAbort))
	if _, err := fmt.Fprintf(c.conn, "cmd=abort exitcode=%d\n", status); err != nil {
		return fmt.Errorf("%w: %w", ErrManager, err)
	}
	return nil
}

// maxAbort bounds the wait for a process manager that does not read.
const maxAbort = 5 * time.Second

// ask sends a line and reads its answer, which has the given command and, if want is not empty, a field of that name, which it returns.
// After ctx has ended in a call, further ones fail at once.
func (c *Client) ask(ctx context.Context, line, command, want string) (value string, err error) {
	defer context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		return "", fmt.Errorf("%w: %w", ErrManager, err)
	}
	answer, err := c.lines.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("%w: no answer to %s: %w", ErrManager, firstField(line), err)
	}
	fields := fieldsOf(string(answer))
	if fields["cmd"] != command {
		return "", fmt.Errorf("%w: %s was answered with %.80q", ErrManager, firstField(line), answer)
	}
	if code, err := strconv.Atoi(fields["rc"]); fields["rc"] != "" && (err != nil || code != 0) {
		return "", fmt.Errorf("%w: %s was refused: %.80q", ErrManager, firstField(line), answer)
	}
	value, ok := fields[want]
	if want != "" && !ok {
		return "", fmt.Errorf("%w: the answer to %s has no %s: %.80q", ErrManager, firstField(line), want, answer)
	}
	return value, nil
}

func firstField(line string) string {
	first, _, _ := strings.Cut(line, " ")
	return first
}

// fieldsOf reads name=value, separated by spaces.
func fieldsOf(line string) map[string]string {
	fields := make(map[string]string)
	for _, f := range strings.Fields(line) {
		if name, value, ok := strings.Cut(f, "="); ok {
			fields[name] = value
		}
	}
	return fields
}
