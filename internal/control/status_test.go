package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The text of an error may have any bytes, those of a file's name for instance. Its class arrives all the same.
func TestErrorsOfAnyBytes(t *testing.T) {
	sent, _ := status.FromError(Status(fmt.Errorf("%w: open r\xe9sum\xe9", overlay.ErrForbidden)))
	wire, err := proto.Marshal(sent.Proto())
	if err != nil {
		t.Fatal(err)
	}
	got := sent.Proto()
	if err := proto.Unmarshal(wire, got); err != nil {
		t.Fatal(err)
	}
	if err := FromStatus(status.ErrorProto(got)); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "open r\uFFFDsum\uFFFD") {
		t.Errorf("%v", err)
	}
}
