package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/yamux"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// maxFault bounds the text of a failure, in bytes: of one that is sent, and of one that a peer sent.
const maxFault = 4 << 10

// Fault converts err to a message: its text, and its class as a wire.Code. What is no UTF-8, as in a file's name, is
// replaced, since messages carry no other text.
func Fault(err error) *controlpb.Fault {
	text := strings.ToValidUTF8(limit.Text(err.Error(), maxFault), "\uFFFD")
	return &controlpb.Fault{Code: uint32(wire.CodeOf(err)), Text: limit.Text(text, maxFault)}
}

// FaultErr is the inverse of Fault; nil for a nil fault.
func FaultErr(f *controlpb.Fault) error {
	if f == nil {
		return nil
	}
	return wire.Code(min(f.Code, 255)).Errorf("%s", limit.Text(f.Text, maxFault))
}

// Status converts err for gRPC, so that FromStatus at the caller restores its text and its class. A
// handler returns control.Status(err); nil stays nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	fault := Fault(err)
	st, detailErr := status.New(grpcCode(err), fault.Text).WithDetails(fault)
	if detailErr != nil {
		return status.Error(grpcCode(err), fault.Text)
	}
	return st.Err()
}

// grpcCode returns the nearest of gRPC's codes, for tools that know only those.
func grpcCode(err error) codes.Code {
	switch {
	case errors.Is(err, overlay.ErrUnknownProcess), errors.Is(err, overlay.ErrUnknownSite), errors.Is(err, overlay.ErrUnknownName):
		return codes.NotFound
	case errors.Is(err, overlay.ErrForbidden):
		return codes.PermissionDenied
	case errors.Is(err, overlay.ErrOverloaded):
		return codes.ResourceExhausted
	case errors.Is(err, overlay.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, overlay.ErrUnreachable), errors.Is(err, overlay.ErrNoRelay):
		return codes.Unavailable
	}
	return codes.FailedPrecondition
}

// FromStatus restores the overlay class of a call's error. A deadline becomes ErrTimeout and an
// ended session ErrUnreachable; the peer's text is kept.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) {
			return fmt.Errorf("%w: %w", overlay.ErrUnreachable, err)
		}
		return err
	}
	for _, d := range st.Details() {
		if f, ok := d.(*controlpb.Fault); ok {
			return FaultErr(f)
		}
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", overlay.ErrTimeout, st.Message())
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", overlay.ErrUnreachable, causeOf(st.Message()))
	case codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, st.Message())
	case codes.ResourceExhausted:
		return fmt.Errorf("%w: %s", overlay.ErrOverloaded, st.Message())
	case codes.PermissionDenied:
		return fmt.Errorf("%w: %s", overlay.ErrForbidden, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: the peer does not know this call: %s", wire.ErrVersion, st.Message())
	}
	return fmt.Errorf("%w: %s", overlay.ErrRefused, st.Message())
}
