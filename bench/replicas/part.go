package replicas

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/cg"
	"github.com/isthmus-grid/isthmus/examples/npb/ep"
	"github.com/isthmus-grid/isthmus/examples/npb/ft"
	"github.com/isthmus-grid/isthmus/examples/npb/is"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/examples/npb/mg"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// A process prints "ready" when all of its job have joined. Every line of its input is an order, which all processes of the job
// get:
//
//	trips SIZE COUNT     a message goes from rank 0 to rank 1 and back
//	kernel NAME CLASS    a run of a NAS kernel
//
// It answers "ok" and what it has sent as a replica since it began: messages of the program, data messages, acknowledgements,
// bytes of the program in data messages, bytes between sets of replicas. At the end of its input it leaves.
const (
	orderTrips  = "trips"
	orderKernel = "kernel"
)

// kernels are the NAS kernels by name.
var kernels = map[string]kernel.Runner{"is": is.Run, "ep": ep.Run, "cg": cg.Run, "mg": mg.Run, "ft": ft.Run}

// maxMessage is how many bytes an order may ask for.
const maxMessage = 16 << 20

// A role is the place of a process in a job, as one line of text.
type role struct {
	port     uint16
	ranks    int
	replicas int
	primary  bool
	number   int          // of the process
	addr     []netip.Addr // of all processes
}

func (r role) String() string {
	words := fmt.Sprintf("%d %d %d %t %d", r.port, r.ranks, r.replicas, r.primary, r.number)
	for _, a := range r.addr {
		words += " " + a.String()
	}
	return words
}

func parseRole(text string) (r role, err error) {
	in := strings.NewReader(text)
	if _, err := fmt.Fscan(in, &r.port, &r.ranks, &r.replicas, &r.primary, &r.number); err != nil {
		return r, fmt.Errorf("role %q: %w", text, err)
	}
	for {
		var word string
		if _, err := fmt.Fscan(in, &word); errors.Is(err, io.EOF) {
			break
		}
		a, err := netip.ParseAddr(word)
		if err != nil {
			return r, fmt.Errorf("role %q: %w", text, err)
		}
		r.addr = append(r.addr, a)
	}
	if r.ranks < 1 || len(r.addr) != r.ranks*r.replicas || r.number < 0 || r.number >= len(r.addr) {
		return r, fmt.Errorf("role %q: process %d of %d ranks of %d, with %d hosts", text, r.number, r.ranks, r.replicas, len(r.addr))
	}
	return r, nil
}

// Part runs a process of a job in this one.
func Part(ctx context.Context, text string, in io.Reader, out io.Writer) (err error) {
	r, err := parseRole(text)
	if err != nil {
		return fmt.Errorf("bench replicas: %w", err)
	}
	join, err := runner.TCPProcess{Hosts: r.addr, Port: r.port, Number: r.number, Size: r.ranks}.Join()
	if err != nil {
		return fmt.Errorf("bench replicas: %w", err)
	}
	options := []mpilib.Option{join}
	if r.replicas > 1 {
		options = append(options, mpilib.WithReplica(r.number/r.ranks, r.replicas, r.primary))
	}
	w, err := mpilib.Init(ctx, options...)
	if err != nil {
		return fmt.Errorf("bench replicas: %w", err)
	}
	defer func() { err = errors.Join(err, w.Finalize(ctx)) }()
	if err := obey(ctx, w.Comm(), in, out); err != nil {
		return fmt.Errorf("bench replicas: process %d: %w", r.number, err)
	}
	return nil
}

// obey carries out orders until there are no more.
func obey(ctx context.Context, comm *mpilib.Comm, in io.Reader, out io.Writer) error {
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		if err := carryOut(ctx, comm, lines.Text()); err != nil {
			return fmt.Errorf("order %q: %w", lines.Text(), err)
		}
		t := comm.World().ReplicaTraffic()
		fmt.Fprintln(out, "ok", t.Sends, t.Data, t.Acks, t.DataBytes, t.AcrossBytes)
	}
}

func carryOut(ctx context.Context, comm *mpilib.Comm, order string) error {
	var what string
	var size, count int
	if _, err := fmt.Sscan(order, &what, &size, &count); err == nil && what == orderTrips && size >= 0 && size <= maxMessage {
		return trips(ctx, comm, size, count)
	}
	var name, class string
	_, err := fmt.Sscan(order, &what, &name, &class)
	run := kernels[name]
	if err != nil || what != orderKernel || run == nil {
		return errors.New("unknown")
	}
	got, err := run(ctx, comm, npb.Class(class))
	if err == nil && !got.Verified {
		err = fmt.Errorf("results are wrong: %+v", got.Checks)
	}
	return err
}

const messageTag = 1

// trips makes round trips between ranks 0 and 1.
func trips(ctx context.Context, comm *mpilib.Comm, size, count int) error {
	if comm.Size() != 2 {
		return fmt.Errorf("%d ranks, want 2", comm.Size())
	}
	buf := make([]byte, size)
	for range count {
		if comm.Rank() == 0 {
			if err := mpilib.Send(ctx, comm, buf, 1, messageTag); err != nil {
				return err
			}
			if _, err := mpilib.Recv(ctx, comm, buf, 1, messageTag); err != nil {
				return err
			}
			continue
		}
		if _, err := mpilib.Recv(ctx, comm, buf, 0, messageTag); err != nil {
			return err
		}
		if err := mpilib.Send(ctx, comm, buf, 0, messageTag); err != nil {
			return err
		}
	}
	return nil
}
