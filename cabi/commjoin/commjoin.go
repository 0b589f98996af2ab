// Package commjoin carries out MPI_Comm_join: the two processes at the ends of a socket agree over it how they connect.
//
// Each sends a magic and a random number. The one whose number is greater opens a port and sends its text, 0 bytes of it where it
// has none; the other connects, and says in a byte whether that worked. Nothing is left in the socket then.
package commjoin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	magic      = "ISsock01"
	numberLen  = 8 // bytes of the number
	joinedByte = 1
)

// background bounds nothing: the call ends when both processes have joined, or cannot.
var background = context.Background()

// Join returns an intercommunicator of this process and the one at the socket's other end, nil where they cannot reach each other.
func Join(socket io.ReadWriter, w *mpilib.World) (*mpilib.Comm, error) {
	mine, theirs := make([]byte, len(magic)+numberLen), make([]byte, len(magic)+numberLen)
	rand.Read(mine[copy(mine, magic):]) // never fails (crypto/rand)
	if err := exchange(socket, mine, theirs); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(theirs, []byte(magic)) || bytes.Equal(mine, theirs) {
		return nil, fmt.Errorf("the socket's other end sent %.8q: its process must call MPI_Comm_join, and nothing else may use the socket", theirs)
	}
	// A communicator of its own: MPI_COMM_SELF may be in a collective call of another thread.
	alone, err := w.NewSession().CommFromGroup(background, w.Self().Group(), "isthmus: join "+string(mine), nil)
	if err != nil {
		return nil, err
	}
	defer alone.Free()
	if bytes.Compare(mine, theirs) > 0 {
		return invite(socket, alone)
	}
	return visit(socket, alone)
}

// exchange sends a message of each end.
func exchange(socket io.ReadWriter, out, in []byte) error {
	if _, err := socket.Write(out); err != nil {
		return fmt.Errorf("sending to the socket's other end: %w", err)
	}
	return receive(socket, in)
}

func receive(socket io.Reader, in []byte) error {
	if _, err := io.ReadFull(socket, in); err != nil {
		return fmt.Errorf("receiving from the socket's other end: %w", err)
	}
	return nil
}

// invite opens a port for the other end.
func invite(socket io.ReadWriter, alone *mpilib.Comm) (*mpilib.Comm, error) {
	port, cannot := alone.World().OpenPort(background)
	text := append(binary.BigEndian.AppendUint16(nil, uint16(len(port))), port...)
	if _, err := socket.Write(text); err != nil {
		return nil, fmt.Errorf("sending a port to the socket's other end: %w", err)
	}
	if cannot != nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	answer, answered := make([]byte, 1), make(chan error, 1)
	go func() {
		err := receive(socket, answer)
		if err != nil || answer[0] != joinedByte {
			cancel()
		}
		answered <- err
	}()
	made, cannot := alone.Accept(ctx, port, 0)
	alone.World().ClosePort(port) // the other end may still be waiting there
	err := <-answered
	if cannot != nil {
		return nil, err
	}
	return made, err
}

// visit connects to the port that the other end has opened.
func visit(socket io.ReadWriter, alone *mpilib.Comm) (*mpilib.Comm, error) {
	length := make([]byte, 2)
	if err := receive(socket, length); err != nil {
		return nil, err
	}
	port := make([]byte, binary.BigEndian.Uint16(length))
	if err := receive(socket, port); err != nil || len(port) == 0 {
		return nil, err
	}
	made, cannot := alone.Connect(background, string(port), 0)
	answer := []byte{joinedByte}
	if cannot != nil {
		answer[0] = 0
	}
	if _, err := socket.Write(answer); err != nil {
		return nil, fmt.Errorf("sending to the socket's other end: %w", err)
	}
	return made, nil
}
