package core

import (
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// buffer is memory from which buffered sends are sent (MPI-5.0, section 3.6): a message takes its own bytes of
// it, from the send on until it has left. The rest of MPI_BSEND_OVERHEAD that a program reckons with stays unused.
type buffer struct {
	address, size uintptr // of the program's memory; address may be bufferAutomatic

	mu   sync.Mutex
	used []piece // in the order of their places, or of their sends where the memory is the library's
}

// piece is the part of a buffer that a message takes.
type piece struct {
	from, to int
	sent     *mpilib.Request
}

// bufferAutomatic is MPI_BUFFER_AUTOMATIC: the library finds memory.
const bufferAutomatic = uintptr(2)

// buffers is the buffer of one communicator or session, or of the process.
type buffers struct {
	mu       sync.Mutex
	attached *buffer // nil: none
}

// ofProcess is what communicators without a buffer of their own use.
var ofProcess buffers

// attach attaches memory.
func (b *buffers) attach(address uintptr, size int64) error {
	if size < 0 {
		return failure(errArg, "a buffer of %d bytes", size)
	}
	if address == 0 && size > 0 {
		return failure(errBuffer, "a buffer at address 0")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached != nil {
		return failure(errBuffer, "a buffer is attached already; detach it first")
	}
	b.attached = &buffer{address: address, size: uintptr(size)}
	return nil
}

// get returns the buffer, nil if there is none.
func (b *buffers) get() *buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attached
}

// messages are those that are in the buffer.
func (b *buffers) messages() []piece {
	if at := b.get(); at != nil {
		return at.messages()
	}
	return nil
}

// flush waits until all messages have left the buffer.
func (b *buffers) flush() { flush(b.messages()) }

// iflush starts a flush of the messages that are in the buffer now, and stores the handle of its request.
func (b *buffers) iflush(c *communicator, call string, out uintptr) {
	once, complete := world.GrequestStart(call)
	sent := b.messages()
	released.Go(func() {
		flush(sent)
		complete(empty, nil)
	})
	store(out, requests.Add(&request{comm: c, once: once}))
}

// detach is flush, after which the memory is the program's again, and stores which it was.
func (b *buffers) detach(address, size uintptr) error {
	b.mu.Lock()
	at := b.attached
	b.attached = nil
	b.mu.Unlock()
	if at == nil {
		return failure(errBuffer, "no buffer is attached")
	}
	flush(at.messages())
	store(address, at.address)
	store(size, int64(at.size))
	return nil
}

// messages are those that are in b.
func (b *buffer) messages() []piece {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.used)
}

// flush waits until messages have left. One that cannot be sent has left, too.
func flush(sent []piece) {
	for _, p := range sent {
		p.sent.Wait(background)
	}
}

// send sends a message from a copy of it in b, which is free again when it has left. An error is found at once.
func (b *buffer) send(c *communicator, p mpilib.Part, dest, tag int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	memory, at, err := b.reserve(p.PackedSize())
	if err != nil {
		return err
	}
	r := c.Isend(p.CopiedTo(memory), dest, tag)
	if _, done, err := r.Test(); done || err != nil {
		return err
	}
	b.used = slices.Insert(b.used, at.index, piece{at.from, at.from + len(memory), r})
	return nil
}

// gap is where a message of a buffer goes.
type gap struct{ index, from int }

// reserve finds memory for n bytes. mu is held.
func (b *buffer) reserve(n int) ([]byte, gap, error) {
	b.used = slices.DeleteFunc(b.used, func(p piece) bool {
		_, done, _ := p.sent.Test()
		return done
	})
	if b.address == bufferAutomatic {
		return make([]byte, n), gap{index: len(b.used)}, nil
	}
	at := gap{}
	for at.index < len(b.used) && b.used[at.index].from-at.from < n {
		at.from = b.used[at.index].to
		at.index++
	}
	if int(b.size)-at.from < n {
		return nil, at, failure(errBuffer, "a message of %d bytes has no room in the attached buffer of %d, which %d messages use", n, b.size, len(b.used))
	}
	if n == 0 {
		return nil, at, nil
	}
	return elements[byte](b.address+uintptr(at.from), n), at, nil
}

// bsend sends a message from the buffer of c, or else of its session, or else of the process.
func (c *communicator) bsend(p mpilib.Part, dest, tag int) error {
	b := c.buffers.get()
	if b == nil && c.session != nil {
		b = c.session.buffers.get()
	}
	if b == nil {
		b = ofProcess.get()
	}
	if b == nil {
		return failure(errBuffer, "no buffer is attached; call MPI_Buffer_attach before MPI_Bsend")
	}
	return b.send(c, p, dest, tag)
}

// Bsend is Send that never waits: it sends from a copy in the attached buffer.
func Bsend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm uintptr) int32 {
	return onPart("MPI_Bsend", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		return c.bsend(p, rankOf(dest), tagOf(tag))
	})
}

// Ibsend is Bsend with a request, which is complete.
func Ibsend(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, out uintptr) int32 {
	return onPart("MPI_Ibsend", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		if err := c.bsend(p, rankOf(dest), tagOf(tag)); err != nil {
			return err
		}
		store(out, requests.Add(&request{comm: c, once: c.Isend(mpilib.Part{}, mpilib.ProcNull, 0)}))
		return nil
	})
}

// BsendInit prepares a Bsend. The request stands for one to no process, which completes at once: the message is
// sent where it is started.
func BsendInit(buf uintptr, count int64, datatype uintptr, dest, tag int32, comm, out uintptr) int32 {
	return onPart("MPI_Bsend_init", buf, count, datatype, comm, func(c *communicator, p mpilib.Part) error {
		store(out, requests.Add(&request{comm: c, repeated: bufferedSend{
			c.SendInit(mpilib.Part{}, mpilib.ProcNull, 0).KeepActive(),
			func() error { return c.bsend(p, rankOf(dest), tagOf(tag)) },
		}}))
		return nil
	})
}

// bufferedSend is a Bsend that is started repeatedly.
type bufferedSend struct {
	*mpilib.Persistent
	send func() error
}

// Start sends the message.
func (b bufferedSend) Start() error {
	if err := b.send(); err != nil {
		return err
	}
	return b.Persistent.Start()
}

// BufferAttach attaches memory for buffered sends.
func BufferAttach(memory uintptr, size int64) int32 {
	return onWorld("MPI_Buffer_attach", ofProcess.attach(memory, size))
}

// BufferDetach detaches it, once it is empty.
func BufferDetach(address, size uintptr) int32 {
	return onWorld("MPI_Buffer_detach", ofProcess.detach(address, size))
}

// BufferFlush waits until it is empty.
func BufferFlush() int32 {
	ofProcess.flush()
	return success
}

// BufferIflush starts a BufferFlush.
func BufferIflush(request uintptr) int32 {
	const call = "MPI_Buffer_iflush"
	return onComm(call, commWorld, func(c *communicator) error {
		ofProcess.iflush(c, call, request)
		return nil
	})
}

// CommAttachBuffer is BufferAttach for the messages of a communicator.
func CommAttachBuffer(comm, memory uintptr, size int64) int32 {
	return onComm("MPI_Comm_attach_buffer", comm, func(c *communicator) error { return c.buffers.attach(memory, size) })
}

// CommDetachBuffer is its BufferDetach.
func CommDetachBuffer(comm, address, size uintptr) int32 {
	return onComm("MPI_Comm_detach_buffer", comm, func(c *communicator) error { return c.buffers.detach(address, size) })
}

// CommFlushBuffer is its BufferFlush.
func CommFlushBuffer(comm uintptr) int32 {
	return onComm("MPI_Comm_flush_buffer", comm, func(c *communicator) error {
		c.buffers.flush()
		return nil
	})
}

// CommIflushBuffer is its BufferIflush.
func CommIflushBuffer(comm, request uintptr) int32 {
	const call = "MPI_Comm_iflush_buffer"
	return onComm(call, comm, func(c *communicator) error {
		c.buffers.iflush(c, call, request)
		return nil
	})
}
