// Package meetingpb is the messages of package meeting, generated from
// meeting.proto.
package meetingpb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen meeting.proto
