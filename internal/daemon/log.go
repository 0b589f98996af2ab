package daemon

import (
	"io"
	"log/slog"
)

// newLogger returns a logger to w of the given level and format, both valid, and the variable that
// holds its level.
func newLogger(l Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	mustLevel(level, l.Level)
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// mustLevel sets the level to a value of the setting log.level.
func mustLevel(v *slog.LevelVar, text string) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		panic("daemon: " + err.Error()) // the enum tag permits only slog's names
	}
	v.Set(level)
}
