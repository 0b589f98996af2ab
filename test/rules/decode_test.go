package rules

import (
	"go/ast"
	"slices"
	"testing"
)

// undecoded are the packages that may call proto.Unmarshal and make gRPC's clients and servers: what
// they decode is bounded before, or comes from this module's own tools.
var undecoded = map[string][]string{
	"proto.Unmarshal": {"internal/limit/decode", "internal/control", "internal/control/protogen"},
	"grpc.NewServer":  {"internal/control", "launch/nodeservice"},
	"grpc.NewClient":  {"internal/control", "launch/nodeservice"},
}

// Messages of others are decoded by package decode, which bounds their memory.
func TestMessagesAreBoundedBeforeTheyAreDecoded(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			selected, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			of, is := selected.X.(*ast.Ident)
			if !is {
				return true
			}
			name := of.Name + "." + selected.Sel.Name
			if may, limited := undecoded[name]; limited && !slices.Contains(may, s.folder) {
				t.Errorf("%s calls %s: use internal/limit/decode, or a Session or nodeservice.Connect", s.folder, name)
			}
			return true
		})
	}
}
