package control

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/isthmus-grid/isthmus/internal/limit/decode"
)

// codec is gRPC's for protobuf, which decodes only what package decode takes and what fits the
// peer's budget.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Bounded returns the option with which a client that is no Session's decodes no more than package
// decode takes.
func Bounded() grpc.DialOption {
	return grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()))
}

// received is a message that is to be decoded, as the codec gets it in place of the message itself.
type received struct {
	message proto.Message
	count   func(cost int) error // counts what it will take in memory
	served  bool                 // it is a request
	refused error                // why it was not decoded, whatever it consists of
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, counted := v.(*received)
	if !counted {
		m, ok := v.(proto.Message)
		if !ok {
			return c.CodecV2.Unmarshal(data, v) // which says what is wrong
		}
		r = &received{message: m}
	}
	if err := r.decode(data); r.refused == nil || !r.served {
		return err // which ends the call
	}
	return nil // for an error gRPC's server would send a status of its own at once
}

// decode decodes the message unless it is refused. What is too long is not even copied.
func (r *received) decode(data mem.BufferSlice) error {
	if r.refused = decode.CheckLength(data.Len(), r.message); r.refused != nil {
		return r.refused
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	cost, err := decode.Check(buf.ReadOnlyData(), r.message)
	if err == nil && r.count != nil {
		err = r.count(cost)
	}
	if r.refused = err; err != nil {
		return err
	}
	return proto.Unmarshal(buf.ReadOnlyData(), r.message)
}

// receive calls recv so that the message that it stores in m is counted before it is decoded.
func (r *received) receive(m any, recv func(any) error) (err error) {
	var ok bool
	if r.message, ok = m.(proto.Message); !ok {
		return recv(m)
	}
	if err = recv(r); r.refused != nil {
		return Status(r.refused)
	}
	return err
}

// receive receives a message of the call by recv, and counts it before it is decoded.
func (c *call) receive(m any, recv func(any) error) error {
	r := received{count: c.count, served: true}
	err := r.receive(m, recv)
	if refused := r.refused; refused != nil && c.purse != nil && refused != c.over && !errors.Is(refused, errClosed) && !errors.Is(refused, context.Canceled) {
		c.purse.exceed(refused, false)
	}
	return err
}

// count counts what a message of the call will take in memory.
func (c *call) count(cost int) error {
	if c.over != nil || c.purse == nil {
		return c.over
	}
	if err := c.purse.decode(c.stream, cost); err != nil {
		return fmt.Errorf("%v: %w", c.purse.by, err)
	}
	return nil
}

// Counted returns a registrar for s, a server with the options of an Endpoint or a Meter, that has
// the requests of calls with a single one counted before they are decoded. Those of others are
// anyway.
func Counted(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return registrar{s} }

type registrar struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handle := method.Handler
		method.Handler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(m any) error { return callOf(ctx).receive(m, dec) }, interceptor)
		}
		d.Methods[i] = method
	}
	r.ServiceRegistrar.RegisterService(&d, impl)
}

// services are what a server is to offer, before there is one.
type services []struct {
	desc *grpc.ServiceDesc
	impl any
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *services) RegisterService(desc *grpc.ServiceDesc, impl any) {
	*s = append(*s, struct {
		desc *grpc.ServiceDesc
		impl any
	}{desc, impl})
}

// longest returns how many bytes the longest request of any of the calls may have: gRPC keeps nothing of
// one that is longer, which the codec would refuse when all of it is in memory.
func (s services) longest() int {
	most := decode.MaxBytes
	for _, service := range s {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.desc.ServiceName))
		if err != nil {
			panic(err) // each service is generated, and so is its descriptor
		}
		for i, all := 0, d.(protoreflect.ServiceDescriptor).Methods(); i < all.Len(); i++ {
			m, err := protoregistry.GlobalTypes.FindMessageByName(all.Get(i).Input().FullName())
			if err != nil {
				panic(err)
			}
			bytes, _ := decode.Bounds(m.Zero().Interface())
			most = max(most, bytes)
		}
	}
	return most
}

// share counts the latest answer of a call that this end makes, against the peer's bytes.
type share struct {
	accounts *accounts
	who      string

	mu    sync.Mutex // guards the fields below
	held  int
	ended bool
}

func (s *Session) newShare() *share { return &share{accounts: s.accounts, who: s.Peer().String()} }

// receive receives an answer by recv, in place of the one before it, and counts it before it is decoded.
func (s *share) receive(m any, recv func(any) error) error {
	s.release(false)
	r := received{count: s.count}
	return r.receive(m, recv)
}

func (s *share) count(cost int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return context.Canceled
	}
	err := s.accounts.take(s.who, cost)
	if err == nil {
		s.held += cost
	}
	return err
}

// release releases what is counted; end means that nothing more will be.
func (s *share) release(end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || end
	s.accounts.bytes.Give(s.who, s.held)
	s.held = 0
}
