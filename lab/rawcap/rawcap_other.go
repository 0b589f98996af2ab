//go:build !linux

package rawcap

import "errors"

// Exec needs Linux capabilities.
func Exec(argv, env []string) error {
	return errors.New("giving up CAP_NET_RAW needs Linux")
}
