//go:build !race

package systemtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"edda/internal/testkit"
)

// hostileManifests are the files of testdata and those that are too long for it.
// None names the canary in the folder; the text CANARYPATH does.
func hostileManifests(t *testing.T, canary string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v %v", files, err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(file)] = strings.ReplaceAll(string(text), "CANARYPATH", canary)
	}
	const head = "saga: long\nversion: 1\nkey: event.k\non:\n"
	begin := func(source string) string { return head + "  Begin: {start: true, set: {x: '=" + source + "'}}\n" }
	for name, text := range map[string]string{
		"deep-flow":        head + "  Begin: {set: " + strings.Repeat("[", 200_000),
		"deep-maps":        head + "  Begin: {set: " + strings.Repeat("{a: ", 100_000) + strings.Repeat("}", 100_000) + "}",
		"deep-indent":      indented(3_000),
		"deep-parentheses": begin(strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000)),
		"deep-nots":        begin(strings.Repeat("!", 100_000) + "true"),
		"deep-minus":       begin(strings.Repeat("-", 100_000) + "1"),
		"deep-lists":       begin(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)),
		"deep-ternaries":   begin(strings.Repeat("true ? 1 : (", 20_000) + "1" + strings.Repeat(")", 20_000)),
		"deep-maps-of-map": begin(strings.Repeat("map(1..2, ", 5_000) + "1" + strings.Repeat(")", 5_000)),
		"deep-members":     begin("event" + strings.Repeat(".a", 200_000)),
		"long-sum":         begin("1" + strings.Repeat("+1", 200_000)),
		"long-pipe":        begin("event" + strings.Repeat(" | keys()", 50_000)),
		"long-text":        begin(`"` + strings.Repeat("a", 900_000) + `"`),
		"long-number":      begin(strings.Repeat("9", 500_000)),
		"long-regex":       begin(`event.a matches "` + strings.Repeat("(a|b)*", 50_000) + `"`),
		"regex-counts":     begin(`event.a matches "` + strings.Repeat("(", 500) + "a" + strings.Repeat("{1000})", 500) + `"`),
		"many-errors":      head + strings.Repeat("  ? {[: }]\n", 20_000),
		"many-handlers":    head + many(20_000, "  E%d: {start: true, do: [{effect: e%[1]d}]}\n"),
		"many-documents":   strings.Repeat("---\nsaga: a\n", 20_000),
		"many-anchors":     head + many(20_000, "  E%d: &a%[1]d {start: true}\n") + many(20_000, "  F%d: *a%[1]d\n"),
		"many-merges":      "a0: &a0 {x: 1}\n" + many(3_000, "b%d: &b%[1]d {<<: [*a0, *a0, *a0]}\n") + head,
		"same-names":       head + strings.Repeat("  Begin: {start: true}\n", 20_000),
		"a-long-name":      "saga: " + strings.Repeat("a", 900_000) + "\nversion: 1\nkey: event.k\non: {Begin: {start: true}}\n",
		"a-long-line":      strings.Repeat("#", 1<<20-1),
		"too-long":         strings.Repeat("# a comment\n", 1<<20),
		"tabs":             strings.Repeat("\t", 500_000),
		"block-scalar":     "a: |9\n" + strings.Repeat(" ", 500_000),
		"quotes":           strings.Repeat(`"`, 500_001),
		"questions":        strings.Repeat("? ", 300_000),
		"dashes":           strings.Repeat("- ", 300_000),
		"percent":          strings.Repeat("%TAG ! tag:x\n", 50_000),
		"escapes":          `a: "` + strings.Repeat(`\U0010FFFF`, 90_000) + `"`,
		"steps-of-each":    head + "  Begin: {start: true, do: [{each: =1..100000000, as: x, do: [{effect: e, with: {x: =x}}]}]}\n",
		"lets":             head + "  Begin: {start: true, let: {" + lets(2_000) + "}}\n",
	} {
		out[name+".yaml"] = text
	}
	return out
}

func many(n int, line string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i%300) + "a:\n")
	}
	return b.String()
}

// lets doubles a text with each name.
func lets(n int) string {
	var b strings.Builder
	b.WriteString(`v0: "=\"boom\""`)
	for i := range n {
		fmt.Fprintf(&b, ", v%d: =v%d + v%[2]d", i+1, i)
	}
	return b.String()
}

// Whoever sends in a manifest, to a pipeline that lints what it is given, gets a
// complaint, within bounds of time, memory and words.
func TestHostileManifests(t *testing.T) {
	canary := write(t, t.TempDir(), "canary", canaryText)
	for name, text := range hostileManifests(t, canary) {
		file := write(t, t.TempDir(), name, text)
		command(t, "lint", file)
		if len(text) < 10_000 { // what is long is long for all
			command(t, "test", file)
			command(t, "graph", file)
		}
	}
	if text, err := os.ReadFile(canary); err != nil || string(text) != canaryText {
		t.Errorf("the file was changed: %q %v", text, err)
	}
}

// A folder of them is put in the place of the manifests of a running process:
// a reload refuses it, and what ran runs on.
func TestAReloadOfHostileManifestsChangesNothing(t *testing.T) {
	h := &hostile{t: t, data: t.TempDir(), canary: write(t, t.TempDir(), "canary", canaryText)}
	dir := t.TempDir()
	write(t, dir, "witness.yaml", witnessSaga)
	h.child = dev(t, h.data, dir)
	h.conn, _ = client(t, h.nats)
	for name, text := range hostileManifests(t, h.canary) {
		file := write(t, dir, "hostile-"+name, text)
		if out, _ := h.cli("reload"); strings.Contains(out, "CANARY") && !strings.Contains(out, h.canary) || len(out) > hostileSaid {
			t.Errorf("reload with %s says: %.500s", name, out)
		}
		h.witness("the manifest " + name)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := h.cli("reload"); code != 0 {
		t.Errorf("afterwards: %s", out)
	}
	h.sound()
}

// Arguments and files of the command line, as somebody gives them who has access
// to nothing but the command.
func TestHostileArguments(t *testing.T) {
	dir := t.TempDir()
	// Who names a file may see it: this one is no canary.
	canary, small := write(t, dir, "some file", "the contents of some file\n"), write(t, dir, "small.yaml", smallSaga)
	long := strings.Repeat("A", 100_000)
	for _, args := range [][]string{
		{""}, {long}, {"--" + long}, {"instance", long, long}, {"%s%n%x"}, {"\x1b]0;x\x07"},
		{"instance", "describe", "../../x", "\x1b[2J"}, {"instance", "describe", long, long}, {"instance", "list", "--limit", "-1"}, {"instance", "list", "--limit", "99999999999999999999"},
		{"instance", "list", "--addr", "file://" + canary}, {"instance", "list", "--addr", "http://[::1]:99999"}, {"instance", "list", "--addr", "unix://" + canary}, {"instance", "list", "--addr", "http://a\r\nX: y"},
		{"instance", "list", "--tenant", "a\r\nx-edda-by: root"}, {"instance", "list", "--token", "a\r\nb"}, {"instance", "list", "--token-file", "/dev/null"}, {"instance", "list", "--token-file", dir},
		{"instance", "list", "--ca", canary}, {"instance", "list", "--cert", canary, "--key", canary}, {"audit", "list", "--since", "-99999999999d"},
		{"send", "Order.Begin", "--data", "@" + canary + "x"}, {"send", "Order.Begin", "--data", strings.Repeat("[", 100_000)}, {"send", ">.*", "--data", "{}", "--id", "\x01"}, {"send", "A.B", "--data", "{}", "--tenant", "*.>"},
		{"lint", "/dev/null"}, {"lint", dir + "/../../../../../../../../dev/null"}, {"lint", canary}, {"lint", "/proc/self/mem"}, {"graph", canary, "--format", long},
		{"token", "create", "--name", long, "--role", "admin", "--tenants", "*"}, {"token", "create", "--name", "a\nb", "--role", "admin", "--tenants", "x"}, {"token", "create", "--name", "a", "--role", "admin", "--tenants", long + `"], role: admin`, "--expires", "1d"},
		{"token", "list", "--tokens", canary}, {"token", "list", "--tokens", "/dev/null"}, {"token", "list", "--tokens", "/dev/zero"}, {"run", small, "--tokens", "/dev/zero"},
		{"instance", "list", "--token-file", "/dev/zero"}, {"instance", "list", "--ca", "/dev/zero"}, {"run", "--config", "/dev/zero"}, {"key", "rotate", "--keyset", "/dev/zero"}, {"lint", "/dev/zero"},
		{"send", "A.B", "--data", "@/dev/zero"}, {"deadletter", "redrive", "x", "--why", "y", "--data", "@/dev/zero"}, {"restore", "/dev/zero", "--data", dir + "/r"}, {"token", "list", "--tokens", dir}, {"token", "revoke", "--tokens", canary, "../x"},
		{"key", "rotate", "--keyset", canary}, {"key", "rotate", "--keyset", dir}, {"key", "create", "--keyset", canary},
		{"run", "--config", canary}, {"run", "--config", dir}, {"run", "--config", "/dev/null", small, "--addr", "999.1.1.1:99999"}, {"run", small, "--role", long}, {"run", small, "--tokens", canary},
		{"dev", canary}, {"dev", small, "--data", canary}, {"dev", small, "--addr", "x:y:z"}, {"dev", small, "--data", "/proc/self/nothing"}, {"dev", "/dev/null"},
		{"backup", dir, "--data", dir}, {"backup", "/proc/x", "--data", dir}, {"restore", dir, "--data", dir + "/r"}, {"restore", "/dev/null", "--data", dir + "/r"}, {"restore", canary, "--data", dir + "/r"}, {"restore", canary, "--data", canary},
		{"doctor", "--data", canary}, {"doctor", "--data", long}, {"gc", "--data", "/dev/null"}, {"compact", "--data", dir},
		{"hero", "call", long, strings.Repeat("[", 100_000)}, {"completion", long}, {"__complete", "instance", "describe", long, ""}, {"help", long},
	} {
		command(t, args...)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left %v %v", left, err)
	}
	for _, path := range []string{canary, small} {
		if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
			t.Errorf("%s is changed: %q %v", path, text, err)
		}
	}
}

// leafOf is the number of a page with rows that are in use.
func leafOf(t *testing.T, path string) int {
	t.Helper()
	file, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tx, err := file.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	for id := 2; ; id++ {
		switch info, err := tx.Page(id); {
		case err != nil || info == nil:
			t.Fatalf("no page with rows before %d: %v", id, err)
		case info.Type == "leaf":
			return id
		}
	}
}

// What lies in the place of the store is refused, by every command that opens one,
// and stays as it is.
func TestHostileStores(t *testing.T) {
	made := t.TempDir()
	manifest := write(t, t.TempDir(), "small.yaml", smallSaga)
	if code := dev(t, made, manifest).terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	good, err := os.ReadFile(filepath.Join(made, "store", "edda.db"))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at, n int, with byte) []byte {
		out := bytes.Clone(good)
		for i := at; i < min(at+n, len(out)); i++ {
			out[i] = with
		}
		return out
	}
	page := os.Getpagesize()
	leaf := leafOf(t, filepath.Join(made, "store", "edda.db")) * page
	canary := write(t, t.TempDir(), "canary", canaryText)
	put := func(data []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, data, 0o600) }
	}
	for name, lay := range map[string]func(string) error{
		"a folder":            func(path string) error { return os.MkdirAll(filepath.Join(path, "edda.db"), 0o700) },
		"a link to a file":    func(path string) error { return os.Symlink(canary, path) },
		"a link to itself":    func(path string) error { return os.Symlink(path, path) },
		"a link to a device":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"a pipe":              func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"one byte":            put([]byte{0}),
		"text":                put([]byte(strings.Repeat("no store at all\n", 10_000))),
		"SQLite":              put([]byte("SQLite format 3\x00" + strings.Repeat("\x00", 100_000))),
		"zeros":               put(make([]byte, 1<<20)),
		"ones":                put(bytes.Repeat([]byte{0xff}, 1<<20)),
		"half":                put(good[:3*page]),
		"one page":            put(good[:page]),
		"a page and a byte":   put(good[:page+1]),
		"no metas":            put(changed(0, 2*page, 0)),
		"magic, then nothing": put(changed(64, len(good), 0)),
		"pages of ones":       put(changed(2*page, len(good), 0xff)),
		"one page of ones":    put(changed(leaf, page, 0xff)),
		"headers of sevens":   put(changed(leaf+8, 8, 7)),
	} {
		data := t.TempDir()
		if err := os.Mkdir(filepath.Join(data, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(data, "store", "edda.db")
		if err := lay(path); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		for _, args := range [][]string{
			{"doctor", "--data", data}, {"backup", out, "--data", data}, {"backup", out, "--data", data, "--tenant", "default", "--force"}, {"gc", "--data", data, "--why", "x"},
			{"compact", "--data", data, "--why", "x"}, {"restore", path, "--data", t.TempDir()},
		} {
			if said, code := command(t, args...); code == 0 && args[0] != "gc" && args[0] != "backup" {
				t.Errorf("%s: edda %s took it: %s", name, args[0], tail(said, 500))
			}
		}
		refusedStore(t, name, devArgs(t, manifest, data))
	}
	if text, err := os.ReadFile(canary); err != nil || string(text) != canaryText {
		t.Errorf("the file was changed: %q %v", text, err)
	}
}

// refusedStore starts a process on it, which must end by itself, in words.
func refusedStore(t *testing.T, name string, args []string) {
	t.Helper()
	c := launch(t, args...)
	untilIn(t, hostileWait, name+" is refused by edda dev", func() bool { return testkit.Closed(c.Ended()) })
	if said := c.err.String(); c.code() != 1 || !strings.Contains(said, "edda: ") || strings.Contains(said, "goroutine ") {
		t.Errorf("%s: edda dev ended with %d: %s", name, c.code(), tail(said, 2000))
	}
}
