package lab

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRefusalNamesTheSetting(t *testing.T) {
	none := map[string]string{
		"/proc/sys/user/max_user_namespaces":         "1000",
		"/proc/sys/kernel/unprivileged_userns_clone": "1\n",
	}
	for _, c := range []struct {
		file, value string
		cause       error
		want        string
	}{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0\n", unix.EPERM, "kernel.unprivileged_userns_clone is 0"},
		{"/proc/sys/user/max_user_namespaces", "0\n", unix.ENOSPC, "user.max_user_namespaces is 0"},
		{"/proc/sys/user/max_net_namespaces", "0\n", unix.ENOSPC, "user.max_net_namespaces is 0"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", unix.EACCES, "kernel.apparmor_restrict_unprivileged_userns is 1"},
		{"/other", "0", unix.ENOSPC, "a limit of user.max_*_namespaces is reached"},
		{"/other", "0", unix.EPERM, "seccomp"},
	} {
		err := refusal(c.cause, func(file string) (string, error) {
			if file == c.file {
				return c.value, nil
			}
			if v, ok := none[file]; ok {
				return v, nil
			}
			return "", fs.ErrNotExist
		})
		if !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.cause) {
			t.Errorf("%s=%q: %v; want %q", c.file, c.value, err, c.want)
		}
		if strings.Count(err.Error(), "sysctl -w") > 1 {
			t.Errorf("it blames more than one setting: %v", err)
		}
	}
}
