//go:build !linux && !darwin

package local

import (
	"errors"
	"runtime"
)

func peerCred(int) (Cred, error) {
	return Cred{}, errors.New("not known on " + runtime.GOOS)
}
