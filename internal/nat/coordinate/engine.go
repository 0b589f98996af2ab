package coordinate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
)

// OpenEngine prepares this process for traversing TCP, in the network namespace of the calling
// thread. If the process lacks the privilege, it logs that and returns a nil engine. Run
// ServeEngine.
func OpenEngine(log *slog.Logger) (*traverse.Engine, error) {
	e, err := traverse.Open()
	switch {
	case errors.Is(err, traverse.ErrPrivilege) || errors.Is(err, traverse.ErrUnsupported):
		log.Info("no traversing TCP", "because", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting ready for traversing TCP: %w", err)
	}
	return e, nil
}

// ServeEngine runs e until ctx is done and closes it. It returns at once when e
// is nil.
func ServeEngine(ctx context.Context, e *traverse.Engine, log *slog.Logger) {
	if e == nil {
		return
	}
	defer e.Close()
	if err := e.Serve(ctx); err != nil {
		log.Error("traversing TCP works no more", "error", err)
	}
}
