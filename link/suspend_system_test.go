//go:build system

package link

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A process that is suspended, by a debugger or a scheduler, and continues later finds its links
// unchanged.

// suspendable is the environment variable that makes this program the process to be suspended: it
// holds the technique and the address of the other.
const suspendable = "ISTHMUS_TEST_SUSPENDABLE"

func init() {
	asProcess = func() (bool, error) {
		spec := os.Getenv(suspendable)
		if spec == "" {
			return false, nil
		}
		return true, beSuspendable(spec)
	}
}

// beSuspendable links with the other process and echoes what arrives, until that ends.
func beSuspendable(spec string) error {
	var technique int
	var peer string
	if _, err := fmt.Sscanf(spec, "%d %s", &technique, &peer); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	m, links, stop := serve(identity(new(testing.T), 1), &port{Listener: ln, peer: peer, technique: overlay.Technique(technique)}, 0)
	defer stop()
	if err := m.Connect(context.Background(), 0); err != nil {
		return err
	}
	l := <-links
	if _, err := io.Copy(struct{ io.Writer }{l.Conn}, struct{ io.Reader }{l.Conn}); err != nil {
		return err
	}
	if err := l.Conn.Close(); err != nil {
		return err
	}
	<-l.Done()
	return nil
}

func TestSuspendedPeer(t *testing.T) {
	for name, technique := range map[string]overlay.Technique{"one node": 0, "two nodes": overlay.Direct} {
		t.Run(name, func(t *testing.T) { suspended(t, technique) })
	}
}

func suspended(t *testing.T, technique overlay.Technique) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), suspendable+"="+strconv.Itoa(int(technique))+" "+ln.Addr().String())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(2*time.Minute, func() { child.Process.Kill() })
	t.Cleanup(func() {
		defer hung.Stop()
		if t.Failed() {
			child.Process.Kill()
		}
		if err := child.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
	var address string
	if _, err := fmt.Fscan(bufio.NewReader(out), &address); err != nil {
		t.Fatal(err)
	}
	_, links, stop := serve(identity(t, 0), &port{Listener: ln, peer: address, technique: technique}, 0)
	defer stop()
	l := linked(links)
	l.Conn.SetDeadline(time.Now().Add(2 * time.Minute)) // a bound, never reached

	var talk sync.WaitGroup
	asleep, awake, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	talk.Go(func() {
		defer close(over)
		buf, back := make([]byte, 100<<10), make([]byte, 100<<10)
		for i := range 400 {
			switch i {
			case 100:
				close(asleep)
			case 300:
				<-awake
			}
			for j := range buf {
				buf[j] = byte(i + j)
			}
			if _, err := l.Conn.Write(buf); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
			if _, err := io.ReadFull(l.Conn, back); err != nil || string(back) != string(buf) {
				t.Errorf("message %d came back as something else, or %v", i, err)
				return
			}
		}
		l.Conn.Close()
		<-l.Done()
	})
	select {
	case <-asleep:
	case <-over:
		t.Fatal("they talked no more")
	}
	child.Process.Signal(syscall.SIGSTOP)
	time.Sleep(4 * time.Second) // longer than a path may be silent
	child.Process.Signal(syscall.SIGCONT)
	close(awake)
	talk.Wait()
}
