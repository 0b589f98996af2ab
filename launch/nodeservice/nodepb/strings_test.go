package nodepb

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// text is what strings of the messages hold, by the name of their field: what daemons of the grid make
// themselves, or check before.
var text = map[string]string{
	"job": "a job's id", "job_key": "a job's key", "node": "SITE/NODE", "nodes": "SITE/NODE", "by": "SITE/NODE", "from": "SITE/NODE",
	"user": "checked by overlay.CheckAccount", "groups": "read by package jobgroups", "reason": "a reserve.Reason", "state": "a word of package reserve",
	"signal": "the name of a signal", "name": "of a limit, or of a signal", "why": "of a death: a sentence of the submitter's own", "stale": "came in a string",
	"note": "printable text, made by package offer",
}

// Whatever an operating system says is bytes: it need not be UTF-8, and a message with a string that is
// not cannot be sent.
func TestStringsAreText(t *testing.T) {
	named := map[protoreflect.FullName]bool{"isthmus.node.v1.Limit.name": true, "isthmus.node.v1.Signal.name": true, "isthmus.node.v1.Dead.why": true}
	messages := File_node_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			f := fields.Get(j)
			name := string(f.Name())
			if f.Kind() == protoreflect.StringKind && (text[name] == "" || (name == "name" || name == "why") && !named[f.FullName()]) {
				t.Errorf("%s is a string: if a system, a file or a user's words can be in it, it must be bytes", f.FullName())
			}
		}
	}
}
