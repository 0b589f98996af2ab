package control

import (
	"net"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/limit"
)

// Meter bounds what the callers of a gRPC server that is not an Endpoint's may have in flight. A
// message is counted from its first byte until it is decoded, and then as what it takes in memory
// until the handler asks for the next one, or the call is over. Register services by Counted. Safe for
// concurrent use.
type Meter struct {
	accounts *accounts
	by       string
	over     func(who string, err error)
	names    MeterNames
}

// MeterNames are the names of a Meter's bounds in refusals and metrics, each without "limits.".
type MeterNames struct{ Calls, CallsPerKey, Bytes, BytesPerKey string }

// NewMeter returns a Meter that names itself by in its refusals, and calls over for each of them;
// over must not block.
func NewMeter(b Budget, by string, names MeterNames, over func(who string, err error)) *Meter {
	a := newAccounts(b)
	a.answers = true
	counter := func(what, total, key string) *limit.Counter[string] {
		return limit.NewCounter[string](limit.Bounds{What: what, TotalSetting: "limits." + total, KeySetting: "limits." + key})
	}
	a.calls = counter("calls that are not answered yet", names.Calls, names.CallsPerKey)
	a.open = counter("calls that are not answered or refused yet, a quarter more than the setting", names.Calls, names.CallsPerKey)
	a.bytes = counter("bytes of messages that are not read yet", names.Bytes, names.BytesPerKey)
	a.set(b)
	return &Meter{accounts: a, by: by, over: over, names: names}
}

// ServerOptions returns the options that the server needs.
func (m *Meter) ServerOptions() []grpc.ServerOption { return serverOptions() }

// Metered is a connection of a Meter, to embed in the AuthInfo of the server's credentials.
type Metered struct{ *metered }

func (m Metered) meter() *metered { return m.metered }

// Conn returns a metered connection of who. It is closed when it exceeds the budget.
func (m *Meter) Conn(c net.Conn, who string) Metered {
	return Metered{newMetered(c, true, newPurse(who, m.by, m.accounts, m.accounts.open, func(err error, end bool) {
		m.over(who, err)
		if end {
			c.Close()
		}
	}), nil)}
}

// Limits returns the use of the bounds, for metrics.
func (m *Meter) Limits() []metrics.Limit {
	calls := m.accounts.calls.Stats()
	calls.KeyRefused += m.accounts.open.Stats().KeyRefused
	return append(metrics.LimitsOf(m.names.Calls, m.names.CallsPerKey, calls), metrics.LimitsOf(m.names.Bytes, m.names.BytesPerKey, m.accounts.bytes.Stats())...)
}
