package kv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// thisProcess says which process of which boot of which machine this is; the zero value
// where the system does not tell.
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

// lives tells whether a process of this machine and of our own numbers still runs; one
// that cannot be looked at counts as alive.
func (p processID) lives() bool {
	if err := syscall.Kill(p.PID, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	started, dead, err := startOf(strconv.Itoa(p.PID))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return err != nil || !dead && started == p.Started
}

// startOf reads when a process started, in ticks since the boot, and whether it has ended
// and only waits for its parent to notice.
func startOf(pid string) (started uint64, dead bool, err error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false, err
	}
	// The name, in brackets, may hold anything; the state comes behind it as the third
	// of the fields, the start as the 22nd.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return started, fields[0] == "Z" || fields[0] == "X", err
}
