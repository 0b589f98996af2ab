//go:build !linux

package doctor

import (
	"context"
	"errors"
	"net"

	"github.com/isthmus-grid/isthmus/overlay"
)

func listen(context.Context, string, *overlay.SiteProfile) (net.Listener, error) {
	return nil, errors.New("connecting from a listener's port needs Linux")
}
