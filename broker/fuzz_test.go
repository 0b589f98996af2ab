package broker

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Every request of a frontal or proxy is refused or valid.
func FuzzRequests(f *testing.F) {
	for _, m := range []proto.Message{relayRequest(), offerOf("p1", "192.0.2.7:443"), &controlpb.SignalRequest{Technique: 1 << 30}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	r := relays{b: &Broker{log: slog.New(slog.DiscardHandler)}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var request controlpb.SignalRequest
		if proto.Unmarshal(data, &request) == nil {
			in, err := parseSignalRequest(&request)
			if in == nil || err == nil && in.technique != overlay.Relay && in.technique != overlay.Reversed {
				t.Errorf("%v became %+v, %v", &request, in, err)
			}
		}
		var offer controlpb.OfferRequest
		if proto.Unmarshal(data, &offer) == nil {
			o, err := r.offer(control.Identity{Role: control.RoleProxy, Name: offer.GetName()}, &offer)
			if err == nil && (o.Capacity <= 0 || o.Live < 0 || len(o.Addresses) == 0) {
				t.Errorf("%v became %+v", &offer, o)
			}
		}
	})
}
