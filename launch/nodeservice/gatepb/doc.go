// Package gatepb contains the messages and calls of node services, generated from gate.proto. It
// has no code of its own; package nodeservice serves the calls, and package submit makes them.
package gatepb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen gate.proto
