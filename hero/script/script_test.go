package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// newHost makes a host with a temporary folder. At the end of the test no claim and no
// temporary folder of a run may be left in it.
func newHost(t *testing.T, change func(*Options)) *Host {
	t.Helper()
	if !strings.Contains(t.Name(), "/") {
		t.Parallel()
	}
	core, said := observer.New(zap.WarnLevel)
	o := Options{Dir: t.TempDir(), Log: zap.New(core), Interpreters: Defaults()}
	maps.DeleteFunc(o.Interpreters, func(kind string, _ []string) bool { return kind != "python" && kind != "bash" })
	if _, err := os.Stat(python); err == nil {
		o.Interpreters["python"][0] = python // python3 may be a slow wrapper
	}
	o.Limits.Grace = 300 * time.Millisecond
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	testkit.Must(t, err)
	t.Cleanup(func() {
		for _, pattern := range []string{"claims/*", "contexts/*/runs/*"} {
			if left, _ := filepath.Glob(filepath.Join(o.Dir, pattern)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
		for _, entry := range said.All() { // the host logs a process that does not end
			t.Errorf("logged: %s %v", entry.Message, entry.ContextMap())
		}
	})
	return h
}

func runPython(t *testing.T, h *Host, s Script) RunResult {
	t.Helper()
	if s.Type == "" {
		s.Type = "python"
	}
	if s.ID == "" {
		s.ID = "job:12:2001"
	}
	out, err := h.Run(t.Context(), s)
	testkit.Must(t, err)
	return out
}

func TestResultIsTheObjectOnTheLastLine(t *testing.T) {
	h := newHost(t, nil)
	tests := []struct {
		name, source string
		want         map[string]string
	}{
		{"object", `print("working"); print('{"s": "text", "n": 1.50, "b": true, "l": [1, 2], "o": {"a": null}}')`,
			map[string]string{"s": "text", "n": "1.50", "b": "true", "l": "[1,2]", "o": `{"a":null}`}},
		{"blank lines after it", `print('{"s":"x"}\n\n ')`, map[string]string{"s": "x"}},
		{"not the last line", `print('{"s":"x"}'); print("bye")`, map[string]string{"output": "{\"s\":\"x\"}\nbye\n"}},
		{"a list", `print('[1]')`, map[string]string{"output": "[1]\n"}},
		{"half an object", `print('{"s":')`, map[string]string{"output": "{\"s\":\n"}},
		{"two objects", `print('{"s":1}{"s":2}')`, map[string]string{"output": "{\"s\":1}{\"s\":2}\n"}},
		{"the script 42", `42`, map[string]string{"output": ""}},
		{"an empty object", `print("{}")`, map[string]string{}},
		{"without an end of line", `import sys; sys.stdout.write('{"s":"x"}')`, map[string]string{"s": "x"}},
		{"not UTF-8", `import sys; sys.stdout.buffer.write(b"\xff\xfeabc")`, map[string]string{"output": "\uFFFDabc"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := runPython(t, h, Script{Source: tt.source})
			if !out.OK || out.Reason != "" || fmt.Sprint(out.Result) != fmt.Sprint(tt.want) {
				t.Errorf("%+v, want %q", out, tt.want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	const mib = 1 << 20
	h := newHost(t, func(o *Options) {
		o.Limits = Limits{Grace: 200 * time.Millisecond, Timeout: 20 * time.Second, Output: mib, Memory: 96 * mib, CPU: time.Second,
			FileSize: 4 * mib, Disk: 16 * mib, Processes: 20}
	})
	const grow = "x = []\nwhile True: x.append(b'x' * (1 << 20))\n"
	tests := []struct {
		name, source   string
		timeout        time.Duration
		reason, detail string
		code           int
	}{
		{"exit code", `import sys; sys.exit(3)`, 0, "exit 3", "", 3},
		{"exception", `1/0`, 0, "exit 1", "ZeroDivisionError: division by zero", 1},
		{"not Python", `this is not`, 0, "exit 1", "SyntaxError", 1},
		{"signal", `import os, signal; os.kill(os.getpid(), signal.SIGSEGV)`, 0, "signal SIGSEGV", "", -1},
		{"kills itself", `import os; os.kill(os.getpid(), 9)`, 0, "signal SIGKILL", "", -1},
		{"timeout", `import time; time.sleep(60)`, 200 * time.Millisecond, Timeout, "ran longer than 200ms", -1},
		{"ignores SIGTERM", `import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)`, 300 * time.Millisecond, Timeout, "", -1},
		{"closes its output and goes on", `import os, time; os.close(1); os.close(2); time.sleep(60)`, 200 * time.Millisecond, Timeout, "", -1},
		{"floods stdout", "while True: print('x' * 1000)", 0, OutputLimit, "more than 1048576 bytes", -1},
		{"floods stderr", "import sys\nwhile True: print('x' * 1000, file=sys.stderr)", 0, OutputLimit, "", -1},
		{"floods one line", "import sys\nwhile True: sys.stdout.write('x' * 1000)", 0, OutputLimit, "", -1},
		{"eats memory", grow, 0, MemoryLimit, "more than 100663296 bytes", -2},
		{"children eat memory", "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n    x = os.urandom(40 << 20); time.sleep(60)\ntime.sleep(60)", 0, MemoryLimit, "", -1},
		{"asks for too much at once", `bytearray(10 << 30)`, 0, "exit 1", "MemoryError", 1},
		{"spins", `while True: pass`, 0, CPULimit, "more than 1s", -1},
		{"children spin", "import os\nos.fork(); os.fork()\nwhile True: pass", 0, CPULimit, "", -1},
		{"writes a big file", "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nf = open('big', 'wb')\nwhile True: f.write(b'x' * 65536)", 0, FileSizeLimit, "", -1},
		{"is told about a big file", "f = open('big', 'wb')\nwhile True: f.write(b'x' * 65536)", 0, "exit 1", "File too large", 1},
		{"fills the disk", "import time\nfor i in range(8):\n  open(f'f{i}', 'wb').write(b'x' * (3 << 20))\ntime.sleep(60)", 0, DiskLimit, "", -1},
		{"forks", "import os, time\nfor _ in range(40):\n  if os.fork() == 0: time.sleep(60)\ntime.sleep(60)", 0, ProcessLimit, "more than 20 processes", -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out := runPython(t, h, Script{Source: tt.source, Timeout: tt.timeout})
			if out.OK || out.Reason != tt.reason || !strings.Contains(out.Detail, tt.detail) || tt.code != -2 && out.Code != tt.code {
				t.Errorf("reason %q, detail %q, code %d; want %q, %q, %d", out.Reason, out.Detail, out.Code, tt.reason, tt.detail, tt.code)
			}
			if out.Result["error"] != out.Why() || len(out.Output) > mib {
				t.Errorf("result says %q, output has %d bytes", out.Result["error"], len(out.Output))
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestMemoryThatForksShareCountsOnce(t *testing.T) {
	for mode, h := range bothModes(newHost(t, func(o *Options) { o.Limits.Memory = 160 << 20 })) {
		out := runPython(t, h, Script{Source: `
import os, time
x = os.urandom(50 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
time.sleep(1.5)
print(len(x))`})
		if !out.OK {
			t.Errorf("%s: %+v", mode, out)
		}
	}
}

// pidsIn reads the process ids that a script has written to a file.
func pidsIn(t *testing.T, file string) []int {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	var out []int
	for word := range strings.FieldsSeq(string(b)) {
		var pid int
		if _, err := fmt.Sscan(word, &pid); err != nil {
			t.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

func alive(pid int) bool {
	p, ok := readProc(pid)
	return ok && !p.dead
}

// escape is Python that leaves a process behind: forked twice, in a new session, with an
// empty environment, its standard streams unchanged or closed.
const escape = `
import os, sys, time
def leave(keep):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0: os._exit(0)
        if not keep:
            for fd in (0, 1, 2): os.close(fd)
        os.write(w, str(os.getpid()).encode())
        os.close(w)
        os.execve("/usr/bin/env", ["env", "-i", sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"], {})
    os.close(w)
    pid = os.read(r, 20).decode()
    with open(os.environ["PIDS"], "a") as f: f.write(pid + "\n")
`

// runUntil runs a script and stops it when it writes the line "ready".
func runUntil(t *testing.T, h *Host, s Script) RunResult {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	s.Logs = func(_, line string) {
		if line == "ready" {
			stop(ErrStopped)
		}
	}
	if s.Type == "" {
		s.Type = "python"
	}
	out, err := h.Run(ctx, s)
	testkit.Must(t, err)
	return out
}

func TestARunEndsWhole(t *testing.T) {
	tests := []struct {
		name, rest string
		reason     string
	}{
		{"after its end", "leave(True); leave(False); print('done')", ""},
		{"after an exit", "leave(True); sys.exit(1)", "exit 1"},
		{"at a stop", "leave(True); leave(False); print('ready', flush=True); time.sleep(60)", Stopped},
		{"at a limit", "leave(True); leave(False)\nwhile True: print('x' * 1000)", OutputLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, nil)
			file := filepath.Join(t.TempDir(), "pids")
			began := time.Now()
			out := runUntil(t, h, Script{Source: escape + tt.rest, Env: map[string]string{"PIDS": file}})
			if out.Reason != tt.reason || time.Since(began) > 30*time.Second {
				t.Errorf("%+v after %s", out, time.Since(began))
			}
			pids := pidsIn(t, file)
			if len(pids) == 0 || slices.ContainsFunc(pids, alive) {
				t.Errorf("of %v some live", pids)
			}
		})
	}
}

func TestAProcessThatHopsIsCaught(t *testing.T) {
	h := newHost(t, nil)
	file := filepath.Join(t.TempDir(), "pids")
	// Every process forks the next one and ends.
	out := runUntil(t, h, Script{Env: map[string]string{"PIDS": file}, Source: `
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    n = 0
    while True:
        with open(os.environ["PIDS"], "w") as f: f.write(str(os.getpid()))
        if os.fork() > 0: os._exit(0)
        n += 1
        if n == 100: os.write(1, b"ready\n")
time.sleep(60)`})
	if out.Reason != Stopped {
		t.Fatalf("%+v", out)
	}
	before, err := os.ReadFile(file)
	testkit.Must(t, err)
	if slices.ContainsFunc(pidsIn(t, file), alive) {
		t.Errorf("%s still lives", before)
	}
}

func TestStop(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.Grace = 50 * time.Second })
	tests := []struct {
		name   string
		cause  error
		reason string
	}{{"stopped", fmt.Errorf("%w by actor 12", ErrStopped), Stopped}, {"the runner ends", context.Canceled, Interrupted}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s := Script{ID: "s", Type: "python", Source: `
import os, signal, time
def bye(*_):
    os.write(1, b"cleaned up\n") # print may be in the middle of the other line
    os._exit(0)
signal.signal(signal.SIGTERM, bye)
print("ready", flush=True)
time.sleep(60)`}
			s.Logs = func(_, line string) {
				if line == "ready" {
					cancel(tt.cause)
				}
			}
			out, err := h.Run(ctx, s)
			if err != nil || out.OK || out.Reason != tt.reason || out.Output != "ready\ncleaned up\n" || out.Took > 40*time.Second {
				t.Errorf("%+v, %v", out, err)
			}
			if out, err = h.Run(ctx, s); err != nil || out.Reason != tt.reason || out.Output != "" {
				t.Errorf("after the stop: %+v, %v", out, err)
			}
		})
	}
}

// Children keep the grace when their shell ends at once.
func TestGraceIsForTheWholeGroup(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.Grace = 20 * time.Second })
	file := filepath.Join(t.TempDir(), "done")
	out := runUntil(t, h, Script{Type: "bash", Env: map[string]string{"DONE": file}, Source: `
python3 -c '
import os, signal, time
def bye(*_):
    time.sleep(0.3)
    open(os.environ["DONE"], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, bye)
os.write(1, b"ready\n")
while True: time.sleep(1)' &
exec sleep 60`})
	if _, err := os.Stat(file); err != nil || out.Reason != Stopped {
		t.Errorf("%+v, %v", out, err)
	}
}

// A script can change its mark. Its first process is ended all the same.
func TestAScriptThatTakesItsMarkOff(t *testing.T) {
	h := newHost(t, nil)
	source := "import resource, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nresource.prlimit(0, 15, (1 << 40, 1 << 40))\nprint('ready', flush=True)\n"
	if out := runUntil(t, h, Script{Source: source + "time.sleep(60)"}); out.Reason != Stopped || out.Took > 30*time.Second {
		t.Errorf("%+v", out)
	}
	if out := runPython(t, h, Script{Source: source + "while True: print('x' * 1000)"}); out.Reason != OutputLimit {
		t.Errorf("%+v", out)
	}
}

func TestEnvironmentIsTheJobs(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Interpreters = map[string][]string{"env": {"env"}} })
	out := runPython(t, h, Script{Type: "env", Context: "7", Source: "anything", Env: map[string]string{"GREETING": "hello"}})
	folder := filepath.Join(h.options.Dir, "contexts", "7", "runs")
	got := regexp.MustCompile(folder+"/run-[0-9]+\n").ReplaceAllString(out.Output, "FOLDER\n")
	if want := "GREETING=hello\nHOME=FOLDER\nPATH=" + minimalPath + "\nTMPDIR=FOLDER\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheProcessHasWhatItNeedsAndNoMore(t *testing.T) {
	h := newHost(t, nil)
	out := runPython(t, h, Script{Env: map[string]string{"TEXT": "hé\nllo"}, Source: `
import json, os, resource, sys
print(json.dumps({"mode": oct(os.stat(".").st_mode & 0o777), "files": os.listdir("."), "text": os.environ["TEXT"], "rest": sys.stdin.read(),
  "sid": os.getsid(0) == os.getpgid(0), "core": resource.getrlimit(resource.RLIMIT_CORE), "files open": resource.getrlimit(resource.RLIMIT_NOFILE)}))`})
	want := map[string]string{"mode": "0o700", "files": "[]", "text": "hé\nllo", "rest": "", "sid": "true", "core": "[0,0]", "files open": "[1024,1024]"}
	if fmt.Sprint(out.Result) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", out.Result, want)
	}
}

func TestRefusedScripts(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.Source = 100 })
	many := map[string]string{}
	for i := range 20 {
		many[fmt.Sprint("V", i)] = strings.Repeat("x", 100_000)
	}
	tests := []struct {
		name string
		s    Script
		want string
	}{
		{"empty", Script{Type: "python", Source: " \n"}, "the script is empty"},
		{"long", Script{Type: "python", Source: strings.Repeat("#", 101)}, "101 bytes, more than 100"},
		{"NUL", Script{Type: "python", Source: "print(1)\x00"}, "NUL at byte 8"},
		{"type", Script{Type: "../python", Source: "1"}, "no script type"},
		{"folder", Script{Type: "python", Source: "1", Context: "../7"}, "cannot be a context's folder"},
		{"timeout", Script{Type: "python", Source: "1", Timeout: -1}, "negative"},
		{"name of a variable", Script{Type: "python", Source: "1", Env: map[string]string{"A=B": "x"}}, `"A=B" is no name`},
		{"empty name", Script{Type: "python", Source: "1", Env: map[string]string{"": "x"}}, `"" is no name`},
		{"NUL in a variable", Script{Type: "python", Source: "1", Env: map[string]string{"PASSWORD": "hush\x00"}}, "variable PASSWORD has a NUL"},
		{"a huge variable", Script{Type: "python", Source: "1", Env: map[string]string{"BIG": strings.Repeat("x", 200_000)}}, "variable BIG has 200004 bytes"},
		{"a huge environment", Script{Type: "python", Source: "1", Env: many}, "more than 1048576 bytes together"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := h.Run(t.Context(), tt.s)
			if err != nil || out.OK || out.Reason != Refused || !strings.Contains(out.Detail, tt.want) || out.Code != -1 {
				t.Errorf("%+v, %v", out, err)
			}
			if strings.Contains(out.Why(), "hush") {
				t.Error("a value is shown")
			}
		})
	}
	if got := audited(t, h); len(got) != len(tests) || got[0].Event != "refuse" || got[0].Reason != "the script is empty" {
		t.Errorf("audit %+v", got)
	}
}

func TestTheBiggestEnvironmentRuns(t *testing.T) {
	h := newHost(t, nil)
	env := map[string]string{}
	for i := range 7 {
		env[fmt.Sprint("V", i)] = strings.Repeat("x", maxVariable-3)
	}
	out := runPython(t, h, Script{Env: env, Source: `import os; print(sum(len(os.environ[f"V{i}"]) for i in range(7)))`})
	if out.Output != fmt.Sprintln(7*(maxVariable-3)) {
		t.Errorf("%+v", out)
	}
}

func TestWithoutOptionsInstalledInterpretersRun(t *testing.T) {
	h, err := New(Options{Dir: t.TempDir()})
	if err != nil || !slices.Contains(h.Types(), "bash") {
		t.Fatal(err)
	}
	if out, err := h.Run(t.Context(), Script{ID: "x", Type: "bash", Source: "echo $((6*7))"}); err != nil || out.Output != "42\n" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestNoInterpreter(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Interpreters = map[string][]string{"python": {"python3", "-"}} })
	if _, err := h.Run(t.Context(), Script{ID: "x", Type: "rhai", Source: "1"}); !errors.Is(err, ErrNoInterpreter) || !strings.Contains(err.Error(), "rhai") {
		t.Error(err)
	}
	if fmt.Sprint(h.Types()) != "[python]" {
		t.Errorf("runs %v", h.Types())
	}
	if got := audited(t, h); len(got) != 0 {
		t.Errorf("audit of a run that was none: %+v", got)
	}
}

func TestBadOptions(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	testkit.Must(t, os.Symlink(t.TempDir(), link))
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"interpreter not there", Options{Interpreters: map[string][]string{"v": {"no-such-v"}}}, "interpreter of v"},
		{"no command", Options{Interpreters: map[string][]string{"v": {}}}, "no command"},
		{"type", Options{Interpreters: map[string][]string{"V!": {"bash"}}}, "no script type"},
		{"pattern", Options{Secrets: []string{"[A"}}, "no pattern"},
		{"a link", Options{Dir: link}, "is a link"},
		{"a file", Options{Dir: "/dev/null"}, "folder of scripts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSecretsAreMasked(t *testing.T) {
	h := newHost(t, nil)
	env := map[string]string{"DB_PASSWORD": `p"ä<ss`, "other": "quite-hidden", "PEM_TOKEN": "line-one\nline-two", "SHORT_TOKEN": "abc", "plain": "visible"}
	var mu sync.Mutex
	var lines []string
	out := runPython(t, h, Script{Env: env, Secret: []string{"other"}, Logs: func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, Source: `
import base64, json, os, sys, urllib.parse
e = os.environ
for name in ("DB_PASSWORD", "other", "PEM_TOKEN", "plain"):
    print(e[name], json.dumps(e[name]), json.dumps(e[name], ensure_ascii=False), base64.b64encode(e[name].encode()).decode(), urllib.parse.quote_plus(e[name]))
sys.stderr.write("x" * 16380 + e["other"] + "y" * 100 + "\n")
print("see", e["other"], file=sys.stderr)
print(json.dumps({"p": e["DB_PASSWORD"], e["other"]: "k", "v": e["plain"]}))
sys.exit(1)`})
	log, err := h.Log("", "job:12:2001", 1<<20)
	testkit.Must(t, err)
	for where, text := range map[string]string{"output": out.Output, "detail": out.Detail, "log": log, "lines": strings.Join(lines, "\n"), "result": fmt.Sprint(out.Result)} {
		for _, secret := range []string{`p"ä`, `p\"`, "ss\"", "quite", "idden", "line-one", "line-two", "cXVpdGU", "%C3%A4"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s: %.300s", where, secret, text)
			}
		}
	}
	want := map[string]string{"p": "***", "***": "k", "v": "visible", "error": "exit 1: see ***"}
	if fmt.Sprint(out.Result) != fmt.Sprint(want) {
		t.Errorf("%q", out.Result)
	}
}

func TestASecretAtTheOutputLimitIsNotCutInTwo(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.Output = 1000 })
	out := runPython(t, h, Script{Env: map[string]string{"TOKEN": "PQRSTUVWXY"}, Source: `
import os
print("x" * 995 + os.environ["TOKEN"] + "x" * 10000, flush=True)
input()`})
	log, err := h.Log("", "job:12:2001", 1<<20)
	if err != nil || out.Reason != OutputLimit {
		t.Errorf("%+v, %v, log %s", out.Reason, err, log)
	}
	if strings.Contains(log, "P") || strings.Contains(out.Output, "P") { // the log has the time in digits
		t.Errorf("output ends in %q, log in %q", out.Output[len(out.Output)-8:], log[len(log)-30:])
	}
}

func TestAScriptThatEndsOverTheOutputLimitHasBrokenIt(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.Output = 1000 })
	for _, code := range []int{0, 3} {
		out := runPython(t, h, Script{Source: fmt.Sprintf("import os\nos.write(2, b'x' * 1001)\nos._exit(%d)", code)})
		if out.OK || out.Reason != OutputLimit {
			t.Errorf("exit %d: %+v", code, out)
		}
	}
}

func TestLogsAreStreamed(t *testing.T) {
	h := newHost(t, nil)
	release := filepath.Join(t.TempDir(), "go")
	var lines []string
	out := runPython(t, h, Script{Context: "7", Env: map[string]string{"GO": release}, Logs: func(stream, line string) {
		lines = append(lines, stream+" "+line)
		if line == "first" { // it arrives while the script runs
			if err := os.WriteFile(release, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}, Timeout: 10 * time.Second, Source: `
import os, sys, time
print("first", flush=True)
while not os.path.exists(os.environ["GO"]): time.sleep(0.01)
print("", flush=True)
sys.stdout.write("second\r\nlast")`})
	if want := "[stdout first stdout  stdout second stdout last]"; !out.OK || fmt.Sprint(lines) != want {
		t.Errorf("%q, %+v", lines, out)
	}
	log, err := h.Log("7", "job:12:2001", 1<<20)
	if err != nil || strings.Count(log, "\n") != 4 || !strings.Contains(log, " stdout second\n") {
		t.Errorf("log %q, %v", log, err)
	}
	if short, err := h.Log("7", "job:12:2001", 45); err != nil || strings.Count(short, "\n") != 1 || !strings.HasSuffix(short, " stdout last\n") {
		t.Errorf("end of the log %q, %v", short, err)
	}
	if none, err := h.Log("7", "job:12:9", 100); err != nil || none != "" {
		t.Errorf("%q, %v", none, err)
	}
	if _, err := h.Log("../7", "x", 100); err == nil {
		t.Error("a log of another folder is read")
	}
}

func TestLogsAreRotated(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limits.LogSize, o.Limits.LogFiles = 5000, 3 })
	for i := range 6 {
		runPython(t, h, Script{ID: fmt.Sprint("job/", i), Source: "for i in range(300): print('line', i)"})
	}
	files, err := filepath.Glob(filepath.Join(h.contextFolder(""), "logs", "*"))
	if err != nil || len(files) > 5 || !slices.Contains(files, h.logPath("", "job/5")) {
		t.Errorf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 5100 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	if log, err := h.Log("", "job/5", 1<<20); err != nil || !strings.HasSuffix(log, "line 299\n") || strings.Contains(log, "line 0\n") {
		t.Errorf("%d bytes, %v", len(log), err)
	}
}

func audited(t *testing.T, h *Host) []record {
	t.Helper()
	var out []record
	files, _ := filepath.Glob(filepath.Join(h.options.Dir, "audit-*.jsonl"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		testkit.Must(t, err)
		for line := range strings.Lines(string(b)) {
			var r record
			testkit.Must(t, json.Unmarshal([]byte(line), &r))
			out = append(out, r)
		}
	}
	return out
}

func TestEveryRunIsAudited(t *testing.T) {
	h := newHost(t, nil)
	runPython(t, h, Script{Context: "7", Who: "actor 12", Source: "import sys; sys.exit(4)"})
	got := audited(t, h)
	if len(got) != 2 || got[0].Event != "begin" || got[1].Event != "end" || got[0].Run != got[1].Run {
		t.Fatalf("%+v", got)
	}
	r := got[1]
	if r.Who != "actor 12" || r.Context != "7" || r.ID != "job:12:2001" || r.Type != "python" || r.Exit == nil || *r.Exit != 4 || r.Reason != "exit 4" || r.PID == 0 ||
		r.Hash != (Script{Source: "import sys; sys.exit(4)"}).hash() || len(r.Hash) != 64 {
		t.Errorf("%+v", r)
	}
}

func TestWithoutAnAuditNothingRuns(t *testing.T) {
	h := newHost(t, nil)
	testkit.Must(t, os.Mkdir(filepath.Join(h.options.Dir, time.Now().UTC().Format(auditFile)), 0o700))
	file := filepath.Join(t.TempDir(), "ran")
	_, err := h.Run(t.Context(), Script{ID: "x", Type: "python", Source: `import os; open(os.environ["F"], "w")`, Env: map[string]string{"F": file}})
	if _, gone := os.Stat(file); err == nil || gone == nil {
		t.Errorf("%v, %v", err, gone)
	}
}

func TestManyAtOnce(t *testing.T) {
	h := newHost(t, nil)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			out, err := h.Run(t.Context(), Script{ID: fmt.Sprint(i), Type: "bash", Context: fmt.Sprint(i % 3), Source: fmt.Sprintf("pwd; sleep 0.1; echo '{\"n\":%d}'", i)})
			if err != nil || out.Result["n"] != fmt.Sprint(i) {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	all.Wait()
}

func TestAFolderThatLocksItselfIsRemoved(t *testing.T) {
	h := newHost(t, nil) // its cleanup checks that the folder is empty
	out := runPython(t, h, Script{Type: "bash", Source: "mkdir -p a/b; touch a/b/c; chmod 0 a/b a; chmod 0 ."})
	if !out.OK {
		t.Errorf("%+v", out)
	}
}
