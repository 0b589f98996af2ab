// Package ask asks the daemons on behalf of commands. No question waits in silence: a daemon that
// does not answer at all is given up after cmdline.AnswerTime, a longer wait is announced, and a
// failure says what to do next. It knows neither the questions nor how answers are shown, and keeps
// no state.
package ask

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// callTime bounds the session in which a daemon is asked.
const callTime = 15 * time.Second

// errSilent is the cause when a daemon does not answer within cmdline.AnswerTime.
var errSilent = errors.New("no answer")

// Daemon opens a session with the daemon that to names, and calls f with it. A failure to get an
// answer is a *cmdline.Failure; what the daemon answers to f is returned unchanged.
func Daemon(c *cli.Context, name string, creds *control.Credentials, to control.DialConfig, f func(context.Context, *control.Session) error) error {
	defer cmdline.Waiting(fmt.Sprintf("the %v at %s", to.Role, to.Addr), fmt.Sprintf("on that host: systemctl status isthmus-%v", to.Role))()
	ctx, cancel := context.WithTimeout(c.Context, callTime)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(cmdline.AnswerTime, func() { giveUp(errSilent) })
	defer silence.Stop()
	var isConnected atomic.Bool
	to.Reached = func() { isConnected.Store(true) }
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer e.Close()
	s, err := e.Dial(ctx, to)
	if err == nil && silence.Stop() {
		defer s.Close()
		return answerOf(c, name, to, s, f(ctx, s))
	}
	if s != nil {
		s.Close()
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		err = Silence(isConnected.Load())
	}
	return DaemonFailed(c, name, to.Role, to.Addr, err)
}

// answerOf returns what a question on a session gave: an answer, or a failure if there was none, or if
// the daemon got none from the next one.
func answerOf(c *cli.Context, name string, to control.DialConfig, s *control.Session, err error) error {
	select {
	case <-s.Done():
		return DaemonFailed(c, name, to.Role, to.Addr, errors.Join(err, s.Err()))
	default:
	}
	switch {
	case errors.Is(err, overlay.ErrTimeout):
		return DaemonFailed(c, name, to.Role, to.Addr, err)
	case errors.Is(err, overlay.ErrUnreachable):
		return &cmdline.Failure{
			Cause: name + ": " + trimClass(err), Between: fmt.Sprintf("the %v at %s and the broker", to.Role, to.Addr),
			Next: fmt.Sprintf("on that host: isthmus doctor --config /etc/isthmus/%v.yaml", to.Role), Err: err, Verbose: c.Bool("verbose"),
		}
	}
	return err
}

// Silence is the error of a daemon that does not answer.
func Silence(isConnected bool) error {
	if isConnected {
		return errors.New("it accepts connections and does not answer: it is stopped or overloaded, or something in between drops what follows")
	}
	return fmt.Errorf("no answer within %v: the host is down, or a firewall drops the connection", cmdline.AnswerTime)
}

// DaemonFailed returns the failure of a command that could not ask a daemon.
func DaemonFailed(c *cli.Context, name string, role control.Role, addr string, err error) error {
	who := fmt.Sprintf("%v at %s: ", role, addr)
	f := &cmdline.Failure{
		Cause:   name + ": " + who + strings.TrimPrefix(err.Error(), who),
		Between: fmt.Sprintf("this host and the %v", role),
		Next:    fmt.Sprintf("on that host: systemctl status isthmus-%v", role),
		Err:     err, Verbose: c.Bool("verbose"),
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		f.Cause = name + ": " + who + "it closes connections without an answer: it is ending, or not a daemon of the grid"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		f.Next = "ip route get " + hostOf(addr) + ", here: there is no route from this host; it may have none of that IP version"
	case strings.Contains(err.Error(), "has no address"), strings.Contains(err.Error(), "about the name "), strings.Contains(err.Error(), "cannot be looked up"):
		f.Next = "getent hosts " + hostOf(addr) + ", here: the name may be wrong, or need another DNS server; an address in place of it needs none"
	case errors.Is(err, overlay.ErrForbidden):
		f.Next = "see whose certificate --cert is: openssl x509 -noout -subject -dates -in " + c.String("cert")
		if name != "ca renew" {
			f.Next += "; an admin's: isthmus ca issue admin NAME"
		}
	case strings.Contains(err.Error(), "TLS: ") && name == "ca enroll":
		f.Next = "see that this address is a broker's, of the grid whose administrator made the token"
	case strings.Contains(err.Error(), "TLS: "):
		f.Next = fmt.Sprintf("see that this address is the %v's control port, and --ca the CA of that grid", role)
	}
	return f
}

// hostOf returns the host of HOST:PORT.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// LookAtHelper is what shows why this node's helper gets no answers.
const LookAtHelper = "isthmus doctor --config /etc/isthmus/helper.yaml"

// HelperFailed returns the failure of a command that could not get what it needs through this
// node's helper; other errors it returns after the command's name.
func HelperFailed(c *cli.Context, name string, err error) error {
	none, isNone := errors.AsType[*submit.NoHelper](err)
	list, isList := errors.AsType[*submit.NoList](err)
	f := &cmdline.Failure{Err: err, Verbose: c.Bool("verbose")}
	switch {
	case isNone:
		var why string
		why, f.Next = helperFault(none)
		f.Cause = fmt.Sprintf("%s: helper at %s: %s", name, none.Socket, why)
	case isList && errors.Is(err, overlay.ErrUnreachable):
		f.Cause = fmt.Sprintf("%s: no list of hosts: %s", name, trimClass(list.Err))
		f.Between = "this node's helper and its frontal"
		f.Next = "on the gateway: systemctl status isthmus-frontal; here: isthmus doctor --config /etc/isthmus/helper.yaml"
	case isList && errors.Is(err, overlay.ErrTimeout):
		f.Cause = fmt.Sprintf("%s: no list of hosts: %s", name, trimClass(list.Err))
		f.Between = "this node's helper and its frontal, or that and the broker"
		f.Next = LookAtHelper
	case isShort(err):
		f.Cause = name + ": " + err.Error()
		if old, is := errors.AsType[*submit.Stale](err); is {
			return StaleList(c, name+": too few hosts, of those that are known", old.Why, err)
		}
		f.Next = "isthmus hosts shows which are up, and what they offer; --wait 10m waits for more"
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
	return f
}

// StaleList says that something is as the list of hosts has it, which lacks other sites' hosts, or has
// them as they were.
func StaleList(c *cli.Context, what, why string, err error) *cmdline.Failure {
	return &cmdline.Failure{
		Cause: what + ": " + why, Between: "this site's frontal and the broker", Err: err, Verbose: c.Bool("verbose"),
		Next: "on the gateway: isthmus doctor --config /etc/isthmus/frontal.yaml",
	}
}

// isShort reports whether a job finds too few hosts.
func isShort(err error) bool {
	_, few := errors.AsType[*submit.TooFew](err)
	_, short := errors.AsType[*allocate.Shortage](err)
	return few || short
}

// helperFault says why a helper does not answer, and what to do.
func helperFault(e *submit.NoHelper) (why, next string) {
	const look = "systemctl status isthmus-helper"
	switch {
	case errors.Is(e, fs.ErrNotExist):
		return "nothing listens there", look + "; if its settings name another socket: --helper SOCKET"
	case errors.Is(e, fs.ErrPermission):
		return "this user may not use it", "ask the node's admin, or name your own helper's socket: --helper SOCKET"
	case errors.Is(e, syscall.ECONNREFUSED):
		return "it has ended, and left its socket behind", "systemctl restart isthmus-helper"
	case errors.Is(e, submit.ErrClosing):
		return "it closes connections without an answer, as when too many are open, or it is ending", "try again; " + look
	case errors.Is(e, submit.ErrSilent), errors.Is(e, context.DeadlineExceeded):
		return "it accepts connections and does not answer: it is stopped or overloaded", look
	}
	return e.Err.Error(), look
}

// trimClass returns an error's text without the name of its class, which the sentence around it
// says already.
func trimClass(err error) string {
	text := err.Error()
	for _, class := range []error{overlay.ErrNoSession, overlay.ErrUnreachable, overlay.ErrTimeout} {
		text = strings.TrimPrefix(text, class.Error()+": ")
	}
	return text
}

// Dial opens connections to brokers.
type Dial = enrol.Dial

// Enrolment calls f, which gets a certificate from the broker at addr over connections of dial. Its
// failures are *cmdline.Failure.
func Enrolment(c *cli.Context, name, addr string, f func(context.Context, Dial) error) error {
	defer cmdline.Waiting("the broker at "+addr, "on that host: systemctl status isthmus-broker")()
	ctx, cancel := context.WithTimeout(c.Context, callTime)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(cmdline.AnswerTime, func() { giveUp(errSilent) })
	defer silence.Stop()
	var isConnected atomic.Bool
	err := f(ctx, func(ctx context.Context, addr string, shake enrol.Handshake) (*tls.Conn, error) {
		return carrier.Dial(ctx, addr, carrier.DialOptions{}, func(ctx context.Context, c *net.TCPConn) (*tls.Conn, error) {
			isConnected.Store(true)
			return shake(ctx, &heard{c, silence})
		})
	})
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return DaemonFailed(c, name, control.RoleBroker, addr, Silence(isConnected.Load()))
	}
	if strings.HasPrefix(err.Error(), "broker at ") {
		return DaemonFailed(c, name, control.RoleBroker, addr, err)
	}
	return TokenFailed(c, name, err)
}

// TokenFailed returns the failure of a command for which a token, or an old certificate, is not good.
func TokenFailed(c *cli.Context, name string, err error) error {
	f := &cmdline.Failure{Cause: name + ": " + err.Error(), Err: err, Verbose: c.Bool("verbose")}
	f.Next = "have the administrator of the grid's CA make a new token: isthmus ca token ROLE NAME"
	if name == "ca renew" {
		f.Next = "have the administrator of the grid's CA make a new certificate: isthmus ca issue ROLE NAME"
	}
	if strings.Contains(err.Error(), "clocks") {
		f.Next = "timedatectl, here and where the CA is; if both are right: isthmus ca token ROLE NAME makes a new token"
	}
	return f
}

// Credentials loads the certificate that a command presents, from the files of --cert, --tls-key and
// --ca.
func Credentials(c *cli.Context, name string) (*control.Credentials, error) {
	creds, err := control.LoadCredentials(c.String("cert"), c.String("tls-key"), c.String("ca"))
	if err != nil {
		return nil, &cmdline.Failure{
			Cause: name + ": " + err.Error(), Err: err, Verbose: c.Bool("verbose"),
			Next: "see whose certificate that is, and of which CA: openssl x509 -noout -subject -issuer -in " + c.String("cert"),
		}
	}
	return creds, nil
}

// heard is a connection whose first byte ends the wait for an answer.
type heard struct {
	net.Conn
	silence *time.Timer
}

// Read implements net.Conn.
func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if n > 0 {
		h.silence.Stop()
	}
	return n, err
}
