package script

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edda/internal/testkit"
)

// python is an interpreter that every user may execute.
const python = "/usr/bin/python3"

func newSandbox(t *testing.T, change func(*Options)) *Host {
	t.Helper()
	return newHost(t, func(o *Options) {
		o.Interpreters = map[string][]string{"python": {python, "-"}, "bash": {"/bin/bash", "-s"}}
		o.Sandbox = &Sandbox{UID: sandboxUser(t)}
		if change != nil {
			change(o)
		}
	})
}

// sandboxUser derives a user id for the test that no other test has.
func sandboxUser(t *testing.T) uint32 {
	h := fnv.New32a()
	h.Write([]byte(t.Name()))
	return 62000 + h.Sum32()%1000
}

// rooted reports whether this process is root, and so may make namespaces. For any other
// user it checks that New refuses a sandbox.
func rooted(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	if _, err := New(Options{Dir: t.TempDir(), Sandbox: &Sandbox{}}); err == nil || !strings.Contains(err.Error(), sandboxAdvice) {
		t.Errorf("without rights: %v", err)
	}
	return false
}

func TestASandboxedScriptReachesNothingOutside(t *testing.T) {
	if !rooted(t) {
		return
	}
	h := newSandbox(t, func(o *Options) { o.Limits.Disk = 8 << 20 })
	open := filepath.Join(t.TempDir(), "open")
	testkit.Must(t, os.WriteFile(open, nil, 0o600))
	testkit.Must(t, os.Chmod(open, 0o666))
	out := runPython(t, h, Script{Env: map[string]string{"OPEN": open, "RUNNER": fmt.Sprint(os.Getpid())}, Source: `
import json, os, socket, resource
def tried(f):
    try: return "did it: %s" % f()
    except Exception as e: return type(e).__name__
def fill():
    with open("big", "wb") as f:
        while True: f.write(b"x" * 65536)
def network():
    s = socket.socket(); s.settimeout(1); s.connect(("127.0.0.1", 6379))
def forever():
    resource.prlimit(0, 15, (1 << 40, 1 << 40))
print(json.dumps({"uid": os.getuid(), "groups": os.getgroups(), "cwd": os.getcwd(), "home": os.environ["HOME"], "ls": os.listdir("."),
  "etc": tried(lambda: open("/etc/x", "w")), "shm": tried(lambda: open("/dev/shm/x", "w")), "var": tried(lambda: open("/var/tmp/x", "w")), "open": tried(lambda: open(os.environ["OPEN"], "a")),
  "shadow": tried(lambda: open("/etc/shadow").read()), "kill": tried(lambda: os.kill(int(os.environ["RUNNER"]), 9)),
  "processes": len([p for p in os.listdir("/proc") if p.isdigit()]), "interfaces": [n for _, n in socket.if_nameindex()],
  "network": tried(network), "fill": tried(fill), "null": tried(lambda: open("/dev/null", "w").write("x")),
  "new rights": [l.split()[1] for l in open("/proc/self/status") if l.startswith("NoNewPrivs")][0]}))`})
	want := map[string]string{"uid": fmt.Sprint(sandboxUser(t)), "groups": "[]", "cwd": "/tmp", "home": "/tmp", "ls": "[]",
		"etc": "OSError", "shm": "OSError", "var": "OSError", "open": "FileNotFoundError",
		"shadow": "PermissionError", "kill": "ProcessLookupError", "processes": "2", "interfaces": `["lo"]`,
		"network": "OSError", "fill": "OSError", "null": "did it: 1", "new rights": "1"}
	// A folder that the sandbox's user may not enter counts as read-only.
	for name := range want {
		if out.Result[name] == "PermissionError" && want[name] == "OSError" {
			out.Result[name] = "OSError"
		}
	}
	if fmt.Sprint(out.Result) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q\n%+v", out.Result, want, out)
	}
}

func TestASandboxedRunEndsWithAllItsProcesses(t *testing.T) {
	if !rooted(t) {
		return
	}
	h, user := newSandbox(t, nil), sandboxUser(t)
	tests := []struct {
		name, source, reason string
		timeout              time.Duration
	}{
		{"well", "print('{\"x\": 1}')", "", 0},
		{"exit", "import sys; sys.exit(3)", "exit 3", 0},
		{"timeout", "import time; time.sleep(60)", Timeout, 200 * time.Millisecond},
		{"signal", "import os, signal; os.kill(os.getpid(), 11)", "signal SIGSEGV", 0},
		// It tries to change its mark, leaves the session, and keeps stdout open.
		{"hides", `
import os, resource, signal, time
if os.fork() == 0:
    os.setsid()
    try: resource.prlimit(0, 15, (1 << 40, 1 << 40))
    except PermissionError: pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0: print("hidden", flush=True)
    time.sleep(300)
time.sleep(0.2)`, "", 0},
		{"hides itself", "import resource, time\nresource.prlimit(0, 15, (1 << 40, 1 << 40))\nprint('hidden', flush=True); time.sleep(300)", "exit 1", time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := pids()
			began := time.Now()
			out := runPython(t, h, Script{Source: tt.source, Timeout: tt.timeout})
			if out.Reason != tt.reason || time.Since(began) > 30*time.Second {
				t.Errorf("%+v after %s", out, time.Since(began))
			}
			for _, pid := range pids() {
				if !slices.Contains(before, pid) && ownedBy(pid, user) {
					t.Errorf("process %d is left", pid)
				}
			}
		})
	}
}

func ownedBy(pid int, uid uint32) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid))
}

func TestNewChecksThatTheSandboxUserMayExecuteTheInterpreters(t *testing.T) {
	if !rooted(t) {
		return
	}
	dir := t.TempDir()
	private := filepath.Join(dir, "private")
	testkit.Must(t, os.WriteFile(private, []byte("#!/bin/sh\n"), 0o700))
	_, err := New(Options{Dir: dir, Sandbox: &Sandbox{}, Interpreters: map[string][]string{"x": {private}}})
	if err == nil || !strings.Contains(err.Error(), "user 65534 may not execute "+private) {
		t.Error(err)
	}
}
