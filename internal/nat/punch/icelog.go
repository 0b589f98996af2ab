package punch

import (
	"fmt"
	"log/slog"

	"github.com/pion/logging"
)

// iceLogs sends the log of the ICE library to a slog.Logger, all at level debug: relevant problems
// are returned as errors of Describe or Connect.
type iceLogs struct{ log *slog.Logger }

// NewLogger implements logging.LoggerFactory.
func (l iceLogs) NewLogger(scope string) logging.LeveledLogger {
	return iceLog{l.log.With("ice", scope)}
}

type iceLog struct{ log *slog.Logger }

func (iceLog) Trace(string)                {}
func (iceLog) Tracef(string, ...any)       {}
func (l iceLog) Debug(s string)            { l.log.Debug(s) }
func (l iceLog) Debugf(f string, a ...any) { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l iceLog) Info(s string)             { l.log.Debug(s) }
func (l iceLog) Infof(f string, a ...any)  { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l iceLog) Warn(s string)             { l.log.Debug(s) }
func (l iceLog) Warnf(f string, a ...any)  { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l iceLog) Error(s string)            { l.log.Debug(s) }
func (l iceLog) Errorf(f string, a ...any) { l.log.Debug(fmt.Sprintf(f, a...)) }
