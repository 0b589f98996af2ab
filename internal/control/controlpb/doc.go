// Package controlpb is the control plane's messages and calls, generated from
// control.proto. It holds no code of its own; package control gives the calls
// a session to run on, and the values their Go form.
package controlpb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen control.proto
