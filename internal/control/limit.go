package control

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// maxRule bounds the name of the rule that sets a rate, in bytes.
const maxRule = 200

// RateLimitToPB converts a rate and the rule that sets it; to nil without a rate.
func RateLimitToPB(rate quota.Rate, rule string) *controlpb.RateLimit {
	if rate == 0 {
		return nil
	}
	return &controlpb.RateLimit{Rate: uint64(rate), Rule: limit.Text(rule, maxRule)}
}

// HeldTo describes what limits a link to a rate: "held to 16Mbit/s by quota.per_job.rate of proxy
// p1". It is empty if there is no limit.
func HeldTo(m *controlpb.RateLimit, by string) string {
	if m.GetRate() == 0 {
		return ""
	}
	rule := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == ';' {
			return '?' // the text is printed to a terminal, as one part of a reason
		}
		return r
	}, m.Rule[:min(len(m.Rule), maxRule)])
	return fmt.Sprintf("%s%v by %s of %s", HeldToPrefix, quota.Rate(min(m.Rate, 1<<62)), rule, by)
}

// HeldToPrefix is the prefix of HeldTo's result.
const HeldToPrefix = "held to "
