package local

import "golang.org/x/sys/unix"

func peerCred(fd int) (Cred, error) {
	x, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Cred{}, err
	}
	cred := Cred{UID: x.Uid}
	if x.Ngroups > 0 {
		cred.GID = x.Groups[0] // the effective group comes first
	}
	if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		cred.PID = int32(pid)
	}
	return cred, nil
}
