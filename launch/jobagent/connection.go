package jobagent

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// connection is a connection with a helper.
type connection struct {
	a             *agent
	c             *net.UnixConn
	have          uint64                 // the last event that was sent
	takenReported uint64                 // last sent count of input bytes taken
	wantsReported bool                   // it was sent that rank 0 waits for more than these
	out           chan *nodepb.FromAgent // answers; an answer waits while it is full
	wake          chan struct{}          // there may be more to send
	over          chan struct{}          // closed when the connection is
	once          sync.Once              // guards the close
}

func (c *connection) close() {
	c.once.Do(func() {
		close(c.over)
		c.c.Close()
	})
}

// serveConn serves one connection to its end. Its Open makes it the current one.
func (a *agent) serveConn(conn *net.UnixConn) {
	c := &connection{a: a, c: conn, out: make(chan *nodepb.FromAgent, 16), wake: make(chan struct{}, 1), over: make(chan struct{})}
	defer c.close()
	conn.SetReadDeadline(time.Now().Add(orphanTime))
	first := &nodepb.ToAgent{}
	if readFrame(conn, first) != nil || first.GetOpen() == nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	if !a.attach(c, first.GetOpen()) {
		return
	}
	defer a.detach(c)
	a.work.Go(c.sendPending) // ends with the connection
	c.readLoop()
}

// attach makes c the current connection, and answers its Open.
func (a *agent) attach(c *connection, m *nodepb.Open) bool {
	taken, _ := a.input.taken()
	opened := &nodepb.Opened{Version: version, Taken: taken}
	dir, err := a.home(m)
	if err != nil {
		opened.Fault = []byte(err.Error())
	}
	opened.Folder, c.have, c.takenReported = []byte(dir), m.Have, opened.Taken
	opened.Waits = a.waits()
	c.out <- &nodepb.FromAgent{Say: &nodepb.FromAgent_Opened{Opened: opened}}
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

// waits reports whether Launch has not been received yet.
func (a *agent) waits() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.launched
}

// detach makes the agent wait for the next connection.
func (a *agent) detach(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == c && !a.closed {
		a.newest = nil
		a.lonely.Reset(a.orphan)
	}
}

// wakeSender makes the current connection check for more to send.
func (a *agent) wakeSender() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil {
		select {
		case a.newest.wake <- struct{}{}:
		default:
		}
	}
}

// answer queues a message, unless the connection has ended.
func (c *connection) answer(m *nodepb.FromAgent) {
	select {
	case c.out <- m:
	case <-c.over:
	}
}

// readLoop handles the helper's messages until the connection ends.
func (c *connection) readLoop() {
	for {
		m := &nodepb.ToAgent{}
		if err := readFrame(c.c, m); err != nil {
			return
		}
		c.take(m)
	}
}

// take handles one message.
func (c *connection) take(m *nodepb.ToAgent) {
	a := c.a
	switch m := m.Say.(type) {
	case *nodepb.ToAgent_File:
		if err, end := a.stage(m.File); end || err != nil {
			said := &nodepb.StagedFile{Name: m.File.Name}
			if err != nil {
				said.Fault = []byte(err.Error())
			}
			c.answer(&nodepb.FromAgent{Say: &nodepb.FromAgent_Staged{Staged: said}})
		}
	case *nodepb.ToAgent_Launch:
		a.launch(m.Launch)
	case *nodepb.ToAgent_Input:
		if err := a.input.put(m.Input); err != nil {
			c.answer(&nodepb.FromAgent{Say: &nodepb.FromAgent_Fault{Fault: &nodepb.Fault{Code: nodepb.Fault_INVALID, Text: []byte(err.Error())}}})
		}
	case *nodepb.ToAgent_Signal:
		if sig := unix.SignalNum("SIG" + m.Signal.Name); sig != 0 {
			a.signal(syscall.Signal(sig), m.Signal.Ranks)
		}
	case *nodepb.ToAgent_Ack:
		a.events.Ack(m.Ack.Event)
		if a.events.Finished() {
			a.release()
		}
	case *nodepb.ToAgent_End:
		a.kill(string(m.End.Why))
	case *nodepb.ToAgent_Release:
		a.release()
	}
}

// sendPending sends what there is to send: answers first, because a helper may be waiting for one.
func (c *connection) sendPending() {
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
		if taken, wants := c.a.input.taken(); taken != c.takenReported || wants && !c.wantsReported {
			c.takenReported, c.wantsReported = taken, wants
			if c.send(&nodepb.FromAgent{Say: &nodepb.FromAgent_Taken{Taken: &nodepb.Taken{Bytes: taken, Wants: wants}}}) != nil {
				return
			}
		}
		if !ended && c.a.hasEnded() {
			ended = true
			if c.send(&nodepb.FromAgent{Say: &nodepb.FromAgent_Ended{Ended: &nodepb.ProcessesEnded{}}}) != nil {
				return
			}
		}
		event, more := c.a.events.Next(c.have)
		if event != nil {
			if c.send(&nodepb.FromAgent{Say: &nodepb.FromAgent_Event{Event: event}}) != nil {
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

// send sends a message. One that cannot be carried ends the job, with that as its reason: sent again, over
// another connection, it would fail again.
func (c *connection) send(m *nodepb.FromAgent) error {
	err := writeFrame(c.c, m)
	if errors.Is(err, ErrMessage) {
		fault := &nodepb.Fault{Code: nodepb.Fault_INVALID, Text: []byte(err.Error())}
		writeFrame(c.c, &nodepb.FromAgent{Say: &nodepb.FromAgent_Fault{Fault: fault}})
		c.a.kill(err.Error())
		c.a.release()
	}
	return err
}

// Link is a helper's end of a connection with an agent. Safe for concurrent use, but that one goroutine at a time may
// call Receive.
type Link struct {
	c      *net.UnixConn
	send   sync.Mutex     // held while a message is written
	Opened *nodepb.Opened // the agent's answer to Open
}

// ErrGone means that an agent has ended, and its job with it.
var ErrGone = errors.New("the job agent has ended")

// openTime bounds the wait for the answer of an agent that was just started.
const openTime = 20 * time.Second

// sendTime bounds how long an agent may stop reading.
const sendTime = 20 * time.Second

// Dial connects to the agent whose socket is at path. It fails with ErrGone if the agent has ended.
func Dial(path string, open *nodepb.Open) (*Link, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT):
		return nil, ErrGone
	case err != nil:
		return nil, err
	}
	l := &Link{c: c}
	c.SetDeadline(time.Now().Add(openTime))
	err = writeFrame(c, &nodepb.ToAgent{Say: &nodepb.ToAgent_Open{Open: open}})
	m := &nodepb.FromAgent{}
	if err == nil {
		err = readFrame(c, m)
	}
	c.SetDeadline(time.Time{})
	switch l.Opened = m.GetOpened(); {
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		err = ErrGone
	case err == nil && l.Opened == nil:
		err = errors.New("the job agent does not answer Open")
	case err == nil && len(l.Opened.Fault) > 0:
		err = errors.New(string(l.Opened.Fault))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

// Send sends a message to the agent. It fails if the agent does not read for 20 s.
func (l *Link) Send(m *nodepb.ToAgent) error {
	l.send.Lock()
	defer l.send.Unlock()
	l.c.SetWriteDeadline(time.Now().Add(sendTime))
	return writeFrame(l.c, m)
}

// Receive returns the agent's next message; io.EOF, or another error, at the end of the connection.
func (l *Link) Receive() (*nodepb.FromAgent, error) {
	m := &nodepb.FromAgent{}
	if err := readFrame(l.c, m); err != nil {
		return nil, err
	}
	if t := m.GetTaken(); t != nil && !l.SaysWants() {
		t.Wants = true
	}
	return m, nil
}

// SaysWants reports whether the agent says when rank 0 waits for input. Of an older one it counts as
// always waiting.
func (l *Link) SaysWants() bool { return l.Opened.Version >= 2 }

// Close closes the connection.
func (l *Link) Close() error { return l.c.Close() }
