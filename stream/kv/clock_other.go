//go:build !linux

package kv

import "time"

// sinceBoot is a clock that goes evenly; that it stands still while the machine is
// suspended is what the wall clock is for.
func sinceBoot() time.Duration { return time.Since(started) }

var started = time.Now()
