package jobagent

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

// connection is one with a helper.
type connection struct {
	a    *agent
	c    *net.UnixConn
	have uint64                 // the last event that was said
	told uint64                 // of the input that was taken
	out  chan *gatepb.FromAgent // answers; who answers waits when it is full
	wake chan struct{}          // there may be more to say
	over chan struct{}          // closed when the connection is
	once sync.Once              // closes it
}

func (c *connection) close() {
	c.once.Do(func() {
		close(c.over)
		c.c.Close()
	})
}

// serveConn serves one connection to its end. It becomes the one that counts with its
// Open.
func (a *agent) serveConn(conn *net.UnixConn) {
	c := &connection{a: a, c: conn, out: make(chan *gatepb.FromAgent, 16), wake: make(chan struct{}, 1), over: make(chan struct{})}
	defer c.close()
	conn.SetReadDeadline(time.Now().Add(orphanTime))
	first := &gatepb.ToAgent{}
	if readFrame(conn, first) != nil || first.GetOpen() == nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	if !a.attach(c, first.GetOpen()) {
		return
	}
	defer a.detach(c)
	a.work.Go(c.speak) // ends with the connection
	c.readLoop()
}

// attach makes c the connection that counts, and answers its Open.
func (a *agent) attach(c *connection, m *gatepb.Open) bool {
	opened := &gatepb.Opened{Version: version, Taken: a.input.taken()}
	dir, err := a.home(m)
	if err != nil {
		opened.Fault = err.Error()
	}
	opened.Folder, c.have, c.told = dir, m.Have, opened.Taken
	opened.Waits = a.waits()
	c.out <- &gatepb.FromAgent{Say: &gatepb.FromAgent_Opened{Opened: opened}}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.newest != nil {
		a.newest.close()
	}
	a.newest = c
	a.lonely.Stop()
	if a.orphan > 0 && m.OrphanMs > 0 {
		a.orphan = time.Duration(m.OrphanMs) * time.Millisecond
	}
	return true
}

// waits reports whether there was no Launch yet.
func (a *agent) waits() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.launched
}

// detach has the agent wait for the next connection.
func (a *agent) detach(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == c && !a.closed {
		a.newest = nil
		a.lonely.Reset(a.orphan)
	}
}

// poke has the newest connection look for more to say.
func (a *agent) poke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil {
		select {
		case a.newest.wake <- struct{}{}:
		default:
		}
	}
}

// answer has something said, unless the connection is over.
func (c *connection) answer(m *gatepb.FromAgent) {
	select {
	case c.out <- m:
	case <-c.over:
	}
}

// readLoop does what the helper says until the connection ends.
func (c *connection) readLoop() {
	for {
		m := &gatepb.ToAgent{}
		if err := readFrame(c.c, m); err != nil {
			return
		}
		c.take(m)
	}
}

// take does what one message says.
func (c *connection) take(m *gatepb.ToAgent) {
	a := c.a
	switch m := m.Say.(type) {
	case *gatepb.ToAgent_File:
		if err, end := a.stage(m.File); end || err != nil {
			said := &gatepb.StagedFile{Name: m.File.Name}
			if err != nil {
				said.Fault = err.Error()
			}
			c.answer(&gatepb.FromAgent{Say: &gatepb.FromAgent_Staged{Staged: said}})
		}
	case *gatepb.ToAgent_Launch:
		a.launch(m.Launch)
	case *gatepb.ToAgent_Input:
		if err := a.input.put(m.Input); err != nil {
			c.answer(&gatepb.FromAgent{Say: &gatepb.FromAgent_Fault{Fault: &gatepb.Fault{Code: gatepb.Fault_INVALID, Text: err.Error()}}})
		}
	case *gatepb.ToAgent_Signal:
		if sig := unix.SignalNum("SIG" + m.Signal.Name); sig != 0 {
			a.signal(syscall.Signal(sig), m.Signal.Ranks)
		}
	case *gatepb.ToAgent_Ack:
		a.events.Ack(m.Ack.Event)
		if a.heardAll() {
			a.release()
		}
	case *gatepb.ToAgent_End:
		a.kill(m.End.Why)
	case *gatepb.ToAgent_Release:
		a.release()
	}
}

// speak says what there is to say: answers first, so that a helper which waits for one
// gets it.
func (c *connection) speak() {
	defer c.close()
	ended := false
	for {
		select {
		case m := <-c.out:
			if c.send(m) != nil {
				return
			}
			continue
		default:
		}
		if taken := c.a.input.taken(); taken != c.told {
			c.told = taken
			if c.send(&gatepb.FromAgent{Say: &gatepb.FromAgent_Taken{Taken: &gatepb.Taken{Bytes: taken}}}) != nil {
				return
			}
		}
		if !ended && c.a.hasEnded() {
			ended = true
			if c.send(&gatepb.FromAgent{Say: &gatepb.FromAgent_Ended{Ended: &gatepb.ProcessesEnded{}}}) != nil {
				return
			}
		}
		event, more := c.a.events.Next(c.have)
		if event != nil {
			if c.send(&gatepb.FromAgent{Say: &gatepb.FromAgent_Event{Event: event}}) != nil {
				return
			}
			c.have = event.Event
			continue
		}
		select {
		case m := <-c.out:
			if c.send(m) != nil {
				return
			}
		case <-more:
		case <-c.wake:
		case <-c.over:
			return
		}
	}
}

func (c *connection) send(m *gatepb.FromAgent) error { return writeFrame(c.c, m) }

// Link is a helper's end of a connection with an agent. Send and Receive are for one
// goroutine each; Close is safe for concurrent use.
type Link struct {
	c      *net.UnixConn
	Opened *gatepb.Opened // the agent's answer to Open
}

// ErrGone says that an agent has ended, and with it its job.
var ErrGone = errors.New("the job agent has ended")

// openTime bounds the wait for an agent that was just started to answer.
const openTime = 20 * time.Second

// sendTime bounds how long an agent may not read.
const sendTime = 20 * time.Second

// Dial connects with the agent that has the socket at path. It fails with ErrGone when
// there is none any more.
func Dial(path string, open *gatepb.Open) (*Link, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT):
		return nil, ErrGone
	case err != nil:
		return nil, err
	}
	l := &Link{c: c}
	c.SetDeadline(time.Now().Add(openTime))
	err = writeFrame(c, &gatepb.ToAgent{Say: &gatepb.ToAgent_Open{Open: open}})
	m := &gatepb.FromAgent{}
	if err == nil {
		err = readFrame(c, m)
	}
	c.SetDeadline(time.Time{})
	switch l.Opened = m.GetOpened(); {
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		err = ErrGone
	case err == nil && l.Opened == nil:
		err = errors.New("the job agent does not answer Open")
	case err == nil && l.Opened.Fault != "":
		err = errors.New(l.Opened.Fault)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

// Send says something to the agent. One that does not read for 20 s is an error.
func (l *Link) Send(m *gatepb.ToAgent) error {
	l.c.SetWriteDeadline(time.Now().Add(sendTime))
	return writeFrame(l.c, m)
}

// Receive returns what the agent says next; io.EOF, or another error, at the end of the
// connection.
func (l *Link) Receive() (*gatepb.FromAgent, error) {
	m := &gatepb.FromAgent{}
	if err := readFrame(l.c, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Close ends the connection.
func (l *Link) Close() error { return l.c.Close() }
