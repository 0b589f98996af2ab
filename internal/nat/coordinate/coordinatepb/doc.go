// Package coordinatepb is the messages of package coordinate, generated from
// coordinate.proto.
package coordinatepb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen coordinate.proto
