package daemon

import (
	"io"
	"log/slog"
)

// newLogger returns a logger to w of the given level and format, both valid.
func newLogger(l Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		panic("daemon: " + err.Error()) // the enum tag lets only slog's names through
	}
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
