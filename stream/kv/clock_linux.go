package kv

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that goes on while the machine is suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(started) // no Linux that Go runs on is without it
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
