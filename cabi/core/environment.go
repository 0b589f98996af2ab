package core

import (
	"os"
	"time"
)

// The version of the standard whose ABI this is.
const (
	version    = int32(5)
	subversion = int32(0)
)

// began is what Wtime counts from: its clock never goes back.
var began = time.Now()

// Wtime returns seconds.
func Wtime() float64 { return time.Since(began).Seconds() }

// Wtick returns the resolution of Wtime in seconds.
func Wtick() float64 { return 1e-9 }

// GetVersion returns the version of the standard.
func GetVersion(v, sub uintptr) int32 {
	store(v, version)
	store(sub, subversion)
	return success
}

// AbiGetVersion returns the version of the standard's ABI.
func AbiGetVersion(major, minor uintptr) int32 {
	store(major, int32(1))
	store(minor, int32(0))
	return success
}

// GetLibraryVersion returns the library's name.
func GetLibraryVersion(text, length uintptr) int32 {
	storeText(text, "Isthmus, MPI across closed sites", maxLibraryText, length)
	return success
}

// GetProcessorName returns the host's name.
func GetProcessorName(name, length uintptr) int32 {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	storeText(name, host, maxProcessorName, length)
	return success
}

// Pcontrol controls nothing (MPI-5.0, section 15.2.4).
func Pcontrol(int32) int32 { return success }

// AintAdd returns an address that lies disp bytes behind another.
func AintAdd(base, disp int64) int64 { return base + disp }

// AintDiff returns how far two addresses are from each other.
func AintDiff(a, b int64) int64 { return a - b }

// GetAddress returns the address of a variable.
func GetAddress(location, address uintptr) int32 {
	store(address, int64(location))
	return success
}
