package kv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// thisProcess identifies this process; zero if the system does not tell.
func thisProcess() processID {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processID{}
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return processID{}
	}
	started, _, err := startOf("self")
	if err != nil {
		return processID{}
	}
	return processID{Boot: strings.TrimSpace(string(boot)), Space: space, PID: os.Getpid(), Started: started}
}

// alive reports whether a process of this machine and PID namespace runs. A process that cannot be
// examined counts as alive.
func (p processID) alive() bool {
	if err := syscall.Kill(p.PID, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	started, dead, err := startOf(strconv.Itoa(p.PID))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return err != nil || !dead && started == p.Started
}

// startOf reads the start time of a process, in ticks since boot, and whether it is a zombie.
func startOf(pid string) (started uint64, dead bool, err error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false, err
	}
	// The name, in brackets, may contain anything. After it come the state, which is the third
	// field, and the start time, which is the 22nd.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return started, fields[0] == "Z" || fields[0] == "X", err
}

// sinceBoot is a clock that also advances while the machine is suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(started) // not on a Linux that Go supports
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
