//go:build !race && linux

package spin

func raceAcquire() {}
func raceRelease() {}
