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
	// Name is how rows and orders call it, in one word.
	Name() string

	// Secured reports whether it encrypts: it is then compared with crypto/tls.
	Secured() bool

	// Open makes one end over raw, at the same time as the other end's process
	// does; one of the two has dialled raw. The End owns raw from then on, the
	// caller closes it after an error.
	Open(ctx context.Context, raw *net.TCPConn, dialled bool) (End, error)
}

// An End sends and receives messages, in order. One goroutine uses it.
type End interface {
	// Send sends msg, at the latest when Flush or Receive is called next. Until
	// Settle, msg stays as it is; it may be sent again.
	Send(msg []byte) error

	// Flush sees to it that what was sent is on its way.
	Flush() error

	// Settle returns when the messages that were sent are their owner's again,
	// as when sends of MPI are completed.
	Settle() error

	// Receive fills msg with the next message, which is as long as msg.
	Receive(msg []byte) error

	Close() error
}

// Transports are all there are, but for those in C. The targets of plan.go
// hold for the names link and link-tls.
var Transports = []Transport{plain{}, spinning{}, bareTLS{}, links{}, links{sealed: true}}

// The names that the plan knows.
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

// plain is a TCP connection as Go has it.
type plain struct{}

func (plain) Name() string  { return namePlain }
func (plain) Secured() bool { return false }
func (plain) Open(_ context.Context, raw *net.TCPConn, _ bool) (End, error) {
	return unbuffered{raw}, nil
}

// spinning is one that spins before it sleeps, and reads ahead.
type spinning struct{}

func (spinning) Name() string  { return nameSpin }
func (spinning) Secured() bool { return false }
func (spinning) Open(_ context.Context, raw *net.TCPConn, _ bool) (End, error) {
	c, err := spin.New(raw, spin.Options{})
	return &readAhead{unbuffered: unbuffered{c}, conn: c, spare: make([]byte, 64<<10)}, err
}

// readAhead is an End that takes from the socket what there is beyond a
// message, as whatever reads frames does.
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

// bareTLS is crypto/tls as it is. Who the peer is does not matter here.
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
