package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/spin"
)

// A Transport is a way, written in Go, to carry messages between two processes.
type Transport interface {
	// Name is its name in rows and orders, one word.
	Name() string

	// Secured reports whether it encrypts: it is then compared with crypto/tls.
	Secured() bool

	// Open makes one end over raw, at the same time as the other end's process; one of the two
	// dialled raw. The End then owns raw. After an error the caller closes it.
	Open(ctx context.Context, raw *net.TCPConn, dialled bool) (End, error)
}

// An End sends and receives messages, in order. One goroutine uses it.
type End interface {
	// Send sends msg, at the latest when Flush or Receive is called next. The caller must not
	// change msg until Settle, but may send it again.
	Send(msg []byte) error

	// Flush starts the transmission of all messages.
	Flush() error

	// Settle returns when the caller may change the messages that it sent, as after the completion
	// of MPI sends.
	Settle() error

	// Receive fills msg with the next message, which has the length of msg.
	Receive(msg []byte) error

	Close() error
}

// Transports are the transports in Go. The targets of plan.go apply to the names link and
// link-tls.
var Transports = []Transport{plain{}, spinning{}, bareTLS{}, links{}, links{sealed: true}}

// The names in the plan.
const (
	nameCBlocking = "c-blocking"
	nameCSpinning = "c-spinning"
	namePlain     = "net"
	nameSpin      = "spin"
	nameTLS       = "crypto-tls"
	nameLink      = "link"
	nameLinkTLS   = "link-tls"
)

// unbuffered is an End that makes one call of a net.Conn per message.
type unbuffered struct{ net.Conn }

func (e unbuffered) Send(msg []byte) error    { _, err := e.Write(msg); return err }
func (e unbuffered) Flush() error             { return nil }
func (e unbuffered) Settle() error            { return nil }
func (e unbuffered) Receive(msg []byte) error { _, err := io.ReadFull(e.Conn, msg); return err }

// plain is Go's TCP connection.
type plain struct{}

func (plain) Name() string  { return namePlain }
func (plain) Secured() bool { return false }
func (plain) Open(_ context.Context, raw *net.TCPConn, _ bool) (End, error) {
	return unbuffered{raw}, nil
}

// spinning is a TCP connection that spins before it sleeps, and reads ahead.
type spinning struct{}

func (spinning) Name() string  { return nameSpin }
func (spinning) Secured() bool { return false }
func (spinning) Open(_ context.Context, raw *net.TCPConn, _ bool) (End, error) {
	c, err := spin.New(raw, spin.Options{})
	return &readAhead{unbuffered: unbuffered{c}, conn: c, spare: make([]byte, 64<<10)}, err
}

// readAhead is an End that reads beyond a message what the socket has, as code that reads frames
// does.
type readAhead struct {
	unbuffered
	conn   *spin.Conn
	spare  []byte
	unread []byte // of spare
}

func (e *readAhead) Receive(msg []byte) error {
	for {
		n := copy(msg, e.unread)
		msg, e.unread = msg[n:], e.unread[n:]
		if len(msg) == 0 {
			return nil
		}
		n, err := e.conn.ReadVec(msg, e.spare)
		if err != nil {
			return err
		}
		e.unread = e.spare[:max(0, n-len(msg))]
		msg = msg[min(n, len(msg)):]
	}
}

// bareTLS is plain crypto/tls. The identity of the peer does not matter here.
type bareTLS struct{}

func (bareTLS) Name() string  { return nameTLS }
func (bareTLS) Secured() bool { return true }
func (bareTLS) Open(ctx context.Context, raw *net.TCPConn, dialled bool) (End, error) {
	if dialled {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		return unbuffered{c}, c.HandshakeContext(ctx)
	}
	cert, err := ownCertificate()
	if err != nil {
		return nil, err
	}
	c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	return unbuffered{c}, c.HandshakeContext(ctx)
}

func ownCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
