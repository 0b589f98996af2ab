package commjoin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// ends returns the ends of a socket.
func ends(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// Two processes that share a socket get an intercommunicator, and find the socket as it was.
func TestJoin(t *testing.T) {
	a, b := ends(t)
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		socket, mine := []*os.File{a, b}[c.Rank()], byte(c.Rank())
		inter, err := Join(socket, c.World())
		if err != nil || inter == nil {
			return fmt.Errorf("the communicator is %v: %v", inter, err)
		}
		theirs, left := []byte{9}, []byte{9}
		if _, err := mpilib.Sendrecv(ctx, inter, []byte{mine}, 0, 1, theirs, 0, 1); err != nil || theirs[0] != 1-mine {
			return fmt.Errorf("received %d: %v", theirs[0], err)
		}
		if err := exchange(socket, []byte{7}, left); err != nil || left[0] != 7 {
			return fmt.Errorf("the socket has %d: %v", left[0], err)
		}
		return inter.Disconnect(ctx)
	})
}

// What the other end of a socket says decides: there is no communicator where it cannot connect, and an error where it does not
// do what is agreed.
func TestAnswers(t *testing.T) {
	first, last := magic+"\x00\x00\x00\x00\x00\x00\x00\x00", magic+"\xff\xff\xff\xff\xff\xff\xff\xff"
	for name, c := range map[string]struct {
		says   string
		closes bool
		fails  string
	}{
		"cannot connect":      {first + "\x00", false, ""},
		"says what is no yes": {first + "\x02", false, ""},
		"leaves":              {first, true, "the socket's other end"},
		"has no port":         {last + "\x00\x00", false, ""},
		"has a bad port":      {last + "\x00\x04here", false, ""},
		"has half a port":     {last + "\x00\x09here", true, "receiving from the socket's other end"},
		"is another":          {"GET / HTTP/1.1\r\n", false, "must call MPI_Comm_join"},
		"says nothing":        {"", true, "receiving from the socket's other end"},
	} {
		t.Run(name, func(t *testing.T) {
			mpilib.TestWorld(t, 1, func(_ context.Context, w *mpilib.Comm) error {
				ours, theirs := ends(t)
				go func() {
					io.ReadFull(theirs, make([]byte, len(first)))
					io.WriteString(theirs, c.says)
					if c.closes {
						theirs.Close()
					}
				}()
				made, err := Join(ours, w.World())
				if made != nil || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					return errors.Join(err, fmt.Errorf("got %v, want %q", made, c.fails))
				}
				return nil
			})
		})
	}
}
