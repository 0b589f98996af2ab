package link

import (
	"context"
	"net"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ending is a context whose end has not reached the contexts derived from it.
type ending struct{ context.Context }

func (ending) Err() error { return context.Canceled }

type endedConnector struct{ overlay.Connector }

func (endedConnector) Accept(context.Context) (overlay.Carrier, error) {
	return overlay.Carrier{}, net.ErrClosed
}

// TestConnectorEndsFirst: it is no failure if a connector ends with the mesh's context, but before
// the mesh has noticed that.
func TestConnectorEndsFirst(t *testing.T) {
	m := NewMesh(Config{Size: 2, Connector: endedConnector{}})
	if err := m.Serve(ending{t.Context()}); err != nil {
		t.Errorf("%v", err)
	}
}
