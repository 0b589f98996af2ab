package starter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

// The starter's protocol: one request and one reply, each a line of JSON, on a connection of its
// own.
const (
	doStart = "start" // an agent, whose listening socket comes with the request
	doKill  = "kill"  // an agent, at once
	doEnded = "ended" // replied to when nothing is left of an agent
)

// maxLine bounds the bytes of a request and of a reply.
const maxLine = 4096

// maxIdentity bounds the bytes of a submitter's identity, which names more than one account if a job has
// asked for the job.
const maxIdentity = 1200

// request is a question.
type request struct {
	Do       string `json:"do"`
	Name     string `json:"name"`               // of the agent: 16 hexadecimal digits
	Identity string `json:"identity,omitempty"` // the submitter, as USER@SITE/NODE; of what a job asks for, several, with " via " between them
	Folder   string `json:"folder,omitempty"`   // parent of the job's folder
	Memory   int64  `json:"memory,omitempty"`   // bytes; 0: not limited
	CPU      int    `json:"cpu,omitempty"`      // thousandths of a core; 0: not limited
}

// reply is an answer.
type reply struct {
	UID     uint32 `json:"uid,omitempty"`
	Only    bool   `json:"only,omitempty"`    // the account is one of the setting uids, which only jobs have
	Refused string `json:"refused,omitempty"` // the reason, for people
}

// check returns an error if a request is invalid.
func (r request) check() error {
	if len(r.Name) != 16 || strings.Trim(r.Name, "0123456789abcdef") != "" {
		return fmt.Errorf("a name of an agent that is not 16 hexadecimal digits: %.40q", r.Name)
	}
	switch r.Do {
	case doKill, doEnded:
		return nil
	case doStart:
	default:
		return fmt.Errorf("%.20q is nothing that a starter does", r.Do)
	}
	user, node, _ := strings.Cut(r.Identity, "@")
	site, host, _ := strings.Cut(node, "/")
	if user == "" || site == "" || host == "" || len(r.Identity) > maxIdentity || strings.ContainsAny(r.Identity, "\n\x00*?[\\") {
		return fmt.Errorf("%.100q is no identity; want USER@SITE/NODE", r.Identity)
	}
	if !path.IsAbs(r.Folder) || r.Memory < 0 || r.CPU < 0 {
		return errors.New("a folder that is not absolute, or negative bounds")
	}
	return nil
}

// decode parses a received line.
func decode(line []byte) (r request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("a question that is no JSON: %w", err)
	}
	if d.More() {
		return r, errors.New("more than one question")
	}
	return r, r.check()
}

// readLine reads up to the end of a line, and the descriptor that came with it. It reads at most
// maxLine bytes.
func readLine(c *net.UnixConn) (line []byte, file *os.File, err error) {
	buf, oob := make([]byte, maxLine), make([]byte, unix.CmsgSpace(4*4))
	for len(line) < maxLine {
		n, oobn, _, _, err := c.ReadMsgUnix(buf[:maxLine-len(line)], oob)
		if oobn > 0 {
			for _, f := range descriptors(oob[:oobn]) {
				if file == nil {
					file = f
				} else {
					f.Close()
				}
			}
		}
		line = append(line, buf[:max(0, n)]...) // n is -1 after an error
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			return line[:end], file, nil
		}
		if err == nil && n == 0 {
			err = errors.New("it ended within a line")
		}
		if err != nil {
			if file != nil {
				file.Close()
			}
			return nil, nil, err
		}
	}
	if file != nil {
		file.Close()
	}
	return nil, nil, fmt.Errorf("a line of more than %d bytes", maxLine)
}

func descriptors(oob []byte) (files []*os.File) {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	return files
}

// Client makes requests to the starter at a socket. It is safe for concurrent use.
type Client struct {
	Socket string
	Folder string // parent of the jobs' folders
}

// answerTime bounds the wait for a reply.
const answerTime = 30 * time.Second

// Start starts an agent in the account for an identity, and returns the account, and whether it is one that
// only jobs have.
func (c *Client) Start(identity string, s jobagent.Spec) (uid uint32, only bool, err error) {
	r, err := c.ask(request{Do: doStart, Name: s.Group, Identity: identity, Folder: c.Folder, Memory: s.Memory, CPU: s.CPU}, s.Listener)
	return r.UID, r.Only, err
}

// Kill ends an agent and its job at once.
func (c *Client) Kill(name string) error {
	_, err := c.ask(request{Do: doKill, Name: name}, nil)
	return err
}

// Ended returns when nothing is left of an agent that has ended, or was killed.
func (c *Client) Ended(name string) error {
	_, err := c.ask(request{Do: doEnded, Name: name}, nil)
	return err
}

// Available returns why no starter serves the socket, or nil.
func (c *Client) Available() error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("the starter: %w", err)
	}
	return conn.Close()
}

func (c *Client) ask(q request, file *os.File) (r reply, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return r, fmt.Errorf("the starter: %w; is isthmus-starter running?", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerTime))
	line, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return r, fmt.Errorf("the starter at %s: %w", c.Socket, err)
	}
	answer, _, err := readLine(conn)
	if err == nil {
		err = json.Unmarshal(answer, &r)
	}
	if err != nil {
		return r, fmt.Errorf("the starter at %s does not answer: %w", c.Socket, err)
	}
	if r.Refused != "" {
		return r, fmt.Errorf("the starter refuses: %s", r.Refused)
	}
	return r, nil
}
