package main

import (
	"fmt"
	"regexp"
	"strings"
)

// setting is a line of settings at their top level.
type setting struct{ key, value string }

// packaged are the values in the settings of the packages, which are examples.
var packaged = map[string]string{
	"site": "sitea", "broker": "['broker.example.org:443']", "frontal": "gateway.site-a.example:7440", "listen": "10.1.0.1:7440",
}

// settle returns settings with the wanted ones: those that are empty or the packages' examples are
// replaced, those that are not there are added, and everything else is kept. It refuses to change
// what somebody has set.
func settle(text string, wanted []setting) (string, error) {
	for _, s := range wanted {
		line := s.key + ": " + s.value
		at := regexp.MustCompile(`(?m)^` + s.key + `:[ \t]*(.*?)[ \t]*(#.*)?$`).FindStringSubmatchIndex(text)
		if at == nil {
			text = strings.TrimRight(text, "\n") + "\n" + line + "\n"
			continue
		}
		switch value := text[at[2]:at[3]]; value {
		case s.value:
		case "", packaged[s.key]:
			text = text[:at[0]] + line + text[at[1]:]
		default:
			return "", fmt.Errorf("%s is %s, and the token or the command line says %s", s.key, value, s.value)
		}
	}
	return strings.TrimLeft(text, "\n"), nil
}
