package daemon

import (
	"io"
	"log/slog"
	"reflect"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// newLogger returns a logger to w of the given level and format, both valid, and the variable that
// holds its level.
func newLogger(l Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	mustLevel(level, l.Level)
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cutLong}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// maxLogged bounds a text in a log line, in bytes: it may be a peer's.
const maxLogged = 4 << 10

// cutLong is a slog.HandlerOptions.ReplaceAttr that cuts long texts.
func cutLong(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		err, is := a.Value.Any().(error)
		if v := reflect.ValueOf(err); is && !(v.Kind() == reflect.Pointer && v.IsNil()) {
			text = err.Error()
		}
	}
	if len(text) > maxLogged {
		a.Value = slog.StringValue(limit.Text(text, maxLogged) + "...")
	}
	return a
}

// mustLevel sets the level to a value of the setting log.level.
func mustLevel(v *slog.LevelVar, text string) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		panic("daemon: " + err.Error()) // the enum tag permits only slog's names
	}
	v.Set(level)
}
