//go:build system

package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/isthmus-grid/isthmus/launch/nodeservice"
)

// between interposes between a program and the helper of a node: it returns the socket that the
// program uses as its helper's. It forwards the messages, and at a moment of a submission to the
// given number of hosts, defined by struck, something happens before the message is forwarded.
// begun is closed when it does.
func (w *world) between(t *testing.T, node, moment string, hosts int, happen func()) (socket string, begun <-chan struct{}) {
	t.Helper()
	conn, err := nodeservice.Connect(w.Socket(node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	dir, err := os.MkdirTemp("", "between") // the test's own would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket+nodeservice.DoorSuffix)
	if err != nil {
		t.Fatal(err)
	}
	s := newStruck(conn, moment, hosts, happen)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, here grpc.ServerStream) error { return passOn(s, here) }))
	served := make(chan struct{})
	go func() { // ends with Stop
		defer close(served)
		server.Serve(ln)
	}()
	t.Cleanup(func() { server.Stop(); <-served })
	return socket, s.begun
}

// passOn makes the call received on a connection, and forwards both sides' messages.
func passOn(conn grpc.ClientConnInterface, here grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(here)
	input, output, err := messagesOf(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(here.Context())
	defer cancel()
	md, _ := metadata.FromIncomingContext(ctx)
	for key, values := range md {
		for _, v := range values {
			if strings.HasPrefix(key, "isthmus-") {
				ctx = metadata.AppendToOutgoingContext(ctx, key, v)
			}
		}
	}
	there, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	go func() { // ends with the call
		for {
			m := input.New().Interface()
			if err := here.RecvMsg(m); err == io.EOF {
				there.CloseSend()
				return
			} else if err != nil {
				cancel()
				return
			}
			if there.SendMsg(m) != nil {
				return // RecvMsg says why
			}
		}
	}()
	for {
		m := output.New().Interface()
		if err := there.RecvMsg(m); err == io.EOF {
			return nil
		} else if err != nil {
			return status.Convert(err).Err()
		}
		if err := here.SendMsg(m); err != nil {
			return err
		}
	}
}

// messagesOf returns the request and response of a method, "/package.Service/Method".
func messagesOf(name string) (input, output protoreflect.MessageType, err error) {
	full := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		return nil, nil, fmt.Errorf("method %s: %w", name, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("%s is no method", name)
	}
	if input, err = protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName()); err != nil {
		return nil, nil, err
	}
	output, err = protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	return input, output, err
}

// socketsOf counts the sockets that others can send to, in the namespace of each host of the lab:
// by host and kind, listening TCP ports, bound UDP ports, and listening local sockets.
func (w *world) socketsOf() map[string][]string {
	w.T.Helper()
	found := map[string][]string{}
	for _, h := range w.Lab.Hosts() {
		err := h.Do(func() error {
			for file, open := range map[string]func(fields []string) (name string, ok bool){
				"tcp": listening, "tcp6": listening, "udp": bound, "udp6": bound, "unix": listeningHere,
			} {
				text, err := os.ReadFile("/proc/thread-self/net/" + file)
				if err != nil {
					return err
				}
				for line := range strings.Lines(string(text)) {
					if name, ok := open(strings.Fields(line)); ok {
						found[h.Name()+" "+file] = append(found[h.Name()+" "+file], name)
					}
				}
			}
			return nil
		})
		if err != nil {
			w.T.Fatal(err)
		}
	}
	return found
}

// listening, bound and listeningHere read lines of proc(5)'s net/tcp, net/udp and net/unix.
func listening(fields []string) (string, bool) {
	const listen = "0A" // TCP_LISTEN in the column "st"
	return at(fields, 1), at(fields, 3) == listen
}

func bound(fields []string) (string, bool) {
	return at(fields, 1), strings.HasSuffix(at(fields, 0), ":") // not the heading
}

func listeningHere(fields []string) (string, bool) {
	const accepts = "00010000" // __SO_ACCEPTCON in the column "Flags"
	return at(fields, 7), at(fields, 3) == accepts
}

func at(fields []string, i int) string {
	if i >= len(fields) {
		return ""
	}
	return fields[i]
}

// noMoreSockets waits until no host has more sockets of a kind than before. They are counted, not
// compared by name: a restarted daemon may have another port.
func (w *world) noMoreSockets(before map[string][]string) {
	w.T.Helper()
	var more []string
	w.Until("no socket to be left", func() bool {
		more = nil
		for kind, now := range w.socketsOf() {
			if len(now) > len(before[kind]) {
				more = append(more, fmt.Sprintf("%s: %v, before %v", kind, now, before[kind]))
			}
		}
		return more == nil
	}, func() string { return strings.Join(more, "; ") })
}
