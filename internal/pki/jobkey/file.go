package jobkey

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// EnvKeyFD is the environment variable that names the descriptor from which a process reads its
// job's key: so neither its environment nor its arguments reveal the key.
const EnvKeyFD = "ISTHMUS_KEY_FD"

// KeyFD is the descriptor that launchers use for it: one that scripts do not use.
const KeyFD = 19

// maxText bounds the text of a key.
const maxText = 512

// FromDescriptor reads a key from the descriptor that EnvKeyFD names, a file of File. Programs that
// this process executes or starts can read it again.
func FromDescriptor(number string) (Key, error) {
	fd, err := strconv.ParseUint(number, 10, 31)
	if err != nil || fd > math.MaxInt32 {
		return Key{}, fmt.Errorf("job key: %s=%.20q is no descriptor", EnvKeyFD, number)
	}
	text, err := io.ReadAll(io.NewSectionReader(descriptor(fd), 0, maxText))
	if err != nil {
		return Key{}, fmt.Errorf("job key: descriptor %d, which %s names: %w; was it closed on the way?", fd, EnvKeyFD, err)
	}
	return Parse(string(text))
}

// descriptor reads at offsets, and neither closes nor moves the descriptor.
type descriptor int

// ReadAt implements io.ReaderAt.
func (d descriptor) ReadAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(d), p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("pread", err)
		case n < len(p):
			return n, io.EOF
		default:
			return n, nil
		}
	}
}
