// Package controlpb contains the control plane's messages and calls, generated from control.proto.
// It has no code of its own; package control provides the sessions for the calls, and converts the
// values to Go types.
package controlpb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen control.proto
