package core

import (
	"sync/atomic"
	"testing"
)

// roomFor has the process send to itself from an attached buffer of some bytes, and takes it away at the end.
func roomFor(t *testing.T, n int) {
	t.Helper()
	memory := make([]byte, n+1)
	check(t, "BufferAttach", BufferAttach(address(&memory[0]), int64(n)), success)
	t.Cleanup(func() {
		var at uintptr
		var size int64
		check(t, "BufferDetach", BufferDetach(address(&at), address(&size)), success)
		if at != address(&memory[0]) || size != int64(n) {
			t.Errorf("detached %#x, %d bytes, want %#x, %d", at, size, address(&memory[0]), n)
		}
	})
}

// large is a message of which a send waits for its receive, so that it stays in its buffer.
const large = 1 << 20

// A buffered send without a buffer, or with one that is too small or full, fails; what has left makes room.
func TestBufferedSends(t *testing.T) {
	joined()
	out, in := make([]byte, large), make([]byte, large)
	send := func(n int64, tag int32) int32 {
		return Bsend(address(&out[0]), n, typeByte, 0, tag, commWorld)
	}
	receive := func(n int64, tag int32) {
		t.Helper()
		var st status
		check(t, "Recv", Recv(address(&in[0]), n, typeByte, 0, tag, commWorld, address(&st)), success)
		if in[0] != byte(tag) || int64(st.low) != n {
			t.Errorf("received %d, %+v, want tag %d of %d bytes", in[0], st, tag, n)
		}
	}
	check(t, "without a buffer", send(1, 1), errBuffer)
	var repeated uintptr
	check(t, "BsendInit", BsendInit(address(&out[0]), 1, typeByte, 0, 1, commWorld, address(&repeated)), success)
	check(t, "Start without a buffer", Start(address(&repeated)), errBuffer)
	check(t, "RequestFree", RequestFree(address(&repeated)), success)
	roomFor(t, 2*large)
	check(t, "another buffer", BufferAttach(address(&in[0]), 1), errBuffer)
	out[0] = 41
	check(t, "the first", send(large, 41), success)
	out[0] = 42
	check(t, "the second", send(large, 42), success)
	check(t, "the third", send(large, 43), errBuffer)
	receive(large, 41)
	out[0] = 43
	check(t, "the third, then", send(large, 43), success)
	check(t, "the fourth", send(large, 44), errBuffer)
	receive(large, 42)
	receive(large, 43)
	check(t, "to no rank", Bsend(address(&out[0]), 3, typeByte, 7, 1, commWorld), errRank)
}

// Flushing waits until the messages have left; a communicator's own buffer comes before that of the process.
func TestFlush(t *testing.T) {
	joined()
	var comm, at uintptr
	var size int64
	out, in, memory := make([]byte, large), make([]byte, large), make([]byte, large)
	check(t, "CommDup", CommDup(commWorld, address(&comm)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(comm, errorsReturn), success)
	check(t, "CommAttachBuffer", CommAttachBuffer(comm, address(&memory[0]), large), success)
	check(t, "Bsend", Bsend(address(&out[0]), large, typeByte, 0, 1, comm), success)
	check(t, "Bsend", Bsend(address(&out[0]), 1, typeByte, 0, 2, comm), errBuffer)
	check(t, "BufferFlush", BufferFlush(), success)
	var receiving atomic.Bool
	received := make(chan int32)
	go func() {
		receiving.Store(true)
		received <- Recv(address(&in[0]), large, typeByte, 0, 1, comm, 0)
	}()
	check(t, "CommFlushBuffer", CommFlushBuffer(comm), success)
	if !receiving.Load() {
		t.Error("the buffer was flushed before its message was received")
	}
	check(t, "Recv", <-received, success)
	check(t, "Bsend", Bsend(address(&out[0]), 1, typeByte, 0, 2, comm), success)
	check(t, "Recv", Recv(address(&in[0]), 1, typeByte, 0, 2, comm, 0), success)
	check(t, "CommDetachBuffer", CommDetachBuffer(comm, address(&at), address(&size)), success)
	check(t, "CommDetachBuffer again", CommDetachBuffer(comm, address(&at), address(&size)), errBuffer)
	if at != address(&memory[0]) || size != large {
		t.Errorf("detached %#x, %d bytes", at, size)
	}
	check(t, "CommFree", CommFree(address(&comm)), success)
}

// MPI_BUFFER_AUTOMATIC has room for all, and the requests of Ibsend and Bsend_init are complete at once.
func TestAutomaticBuffer(t *testing.T) {
	joined()
	var request, repeated, at uintptr
	var size int64
	var flag int32
	out, in := make([]byte, large), make([]byte, large)
	check(t, "BufferAttach", BufferAttach(bufferAutomatic, 0), success)
	check(t, "Ibsend", Ibsend(address(&out[0]), large, typeByte, 0, 5, commWorld, address(&request)), success)
	check(t, "Test", Test(address(&request), address(&flag), 0), success)
	check(t, "BsendInit", BsendInit(address(&out[0]), large, typeByte, 0, 5, commWorld, address(&repeated)), success)
	for range 2 {
		out[1]++
		check(t, "Start", Start(address(&repeated)), success)
		check(t, "Wait", Wait(address(&repeated), 0), success)
	}
	if flag != 1 || request != requestNull || repeated == requestNull {
		t.Errorf("flag %d, requests %#x, %#x", flag, request, repeated)
	}
	for i := range byte(3) {
		check(t, "Recv", Recv(address(&in[0]), large, typeByte, 0, 5, commWorld, 0), success)
		if in[1] != i {
			t.Errorf("message %d is %d", i, in[1])
		}
	}
	check(t, "RequestFree", RequestFree(address(&repeated)), success)
	check(t, "BufferDetach", BufferDetach(address(&at), address(&size)), success)
	if at != bufferAutomatic {
		t.Errorf("detached %#x", at)
	}
}

// The request of a flush is complete when the messages that were in the buffer have left, not those that came later.
func TestIflush(t *testing.T) {
	joined()
	var comm, of, ofComm, none, at uintptr
	var size int64
	var flag int32
	out, in, memory := make([]byte, large), make([]byte, large), make([]byte, 2*large)
	receive := func(tag int32) {
		t.Helper()
		check(t, "Recv", Recv(address(&in[0]), large, typeByte, 0, tag, commWorld, 0), success)
	}
	check(t, "CommDup", CommDup(commWorld, address(&comm)), success)
	check(t, "CommAttachBuffer", CommAttachBuffer(comm, bufferAutomatic, 0), success)
	check(t, "Bsend", Bsend(address(&out[0]), large, typeByte, 0, 51, comm), success)
	check(t, "CommIflushBuffer", CommIflushBuffer(comm, address(&ofComm)), success)
	check(t, "BufferIflush without a buffer", BufferIflush(address(&none)), success)
	check(t, "Wait", Wait(address(&none), 0), success)
	check(t, "BufferAttach", BufferAttach(address(&memory[0]), 2*large), success)
	check(t, "Bsend", Bsend(address(&out[0]), large, typeByte, 0, 52, commWorld), success)
	check(t, "BufferIflush", BufferIflush(address(&of)), success)
	check(t, "Bsend", Bsend(address(&out[0]), large, typeByte, 0, 53, commWorld), success)
	check(t, "Test", Test(address(&of), address(&flag), 0), success)
	if flag != 0 {
		t.Error("the flush is complete before the message was received")
	}
	receive(52)
	check(t, "Wait", Wait(address(&of), 0), success)
	check(t, "Test", Test(address(&ofComm), address(&flag), 0), success)
	if flag != 0 || of != requestNull {
		t.Errorf("the flush of the communicator is complete: %d; the other's request is %#x", flag, of)
	}
	check(t, "RequestFree", RequestFree(address(&ofComm)), success)
	receive(53)
	check(t, "Recv", Recv(address(&in[0]), large, typeByte, 0, 51, comm, 0), success)
	check(t, "BufferDetach", BufferDetach(address(&at), address(&size)), success)
	check(t, "CommDetachBuffer", CommDetachBuffer(comm, address(&at), address(&size)), success)
	check(t, "CommFree", CommFree(address(&comm)), success)
	check(t, "of no communicator", CommIflushBuffer(commNull, address(&of)), errComm)
}
