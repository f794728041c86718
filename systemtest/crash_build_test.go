//go:build !race

package systemtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/gofail/code"

	"edda/internal/harness"
)

// failpoints marks a line of the code where the torture may stop a process. It
// is a comment in what is shipped; the torture builds a binary in which gofail
// has made code of it, also of those that bbolt brings along.
const failpoints = "// gofail: var "

// tortured is the binary with its failpoints enabled; clocked also lets its wall
// clock be stepped. Each is built once, by the first test that needs it.
var (
	tortured = crashBuild{}
	clocked  = crashBuild{clock: true}
)

// crashBuild is one build. Nothing in the source tree is written: what differs
// lies in an overlay, and bbolt in a copy that a go.mod of its own names.
type crashBuild struct {
	clock bool
	once  sync.Once
	dir   string
	path  string
	err   error
}

func (b *crashBuild) get(t testing.TB) string {
	t.Helper()
	b.once.Do(func() { b.err = b.build() })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func (b *crashBuild) build() (err error) {
	if b.dir, err = sharedDir(); err != nil {
		return err
	}
	b.path = filepath.Join(b.dir, "edda")
	root, err := moduleDir("edda")
	if err != nil {
		return err
	}
	bolt, err := moduleDir("go.etcd.io/bbolt")
	if err != nil {
		return err
	}
	overlay := overlay{dir: b.dir, Replace: map[string]string{}}
	if err := overlay.enable(root); err != nil {
		return err
	}
	if b.clock {
		if err := overlay.clock(root); err != nil {
			return err
		}
	}
	mod, err := b.module(root, bolt)
	if err != nil {
		return err
	}
	return harness.GoBuild("-ldflags", asShipped, "-overlay", filepath.Join(b.dir, "overlay.json"), "-modfile", mod, "-o", b.path, "edda/cmd/edda")
}

// asShipped leaves out what only debuggers read, as make build does.
const asShipped = "-s -w"

func moduleDir(path string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// overlay is what go build -overlay reads.
type overlay struct {
	dir     string
	files   int
	Replace map[string]string
}

// put adds a file in the place of another, or a new one.
func (o *overlay) put(path string, text []byte) error {
	o.files++
	file := filepath.Join(o.dir, fmt.Sprintf("%d.go", o.files))
	o.Replace[path] = file
	return os.WriteFile(file, text, 0o600)
}

// enable puts every file of the product with failpoints into the overlay.
func (o *overlay) enable(root string) error {
	err := enabled(root, func(path string, text []byte) error { return o.put(path, text) })
	if err != nil {
		return err
	}
	return o.write()
}

func (o *overlay) write() error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.dir, "overlay.json"), text, 0o600)
}

// module writes a go.mod that takes a copy of bbolt with its failpoints enabled.
func (b *crashBuild) module(root, bolt string) (string, error) {
	copied, err := failingBolt(bolt)
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	mod = fmt.Appendf(mod, "\nreplace go.etcd.io/bbolt => %s\n", copied)
	path := filepath.Join(b.dir, "crash.mod")
	return path, errors.Join(os.WriteFile(path, mod, 0o600), os.WriteFile(filepath.Join(b.dir, "crash.sum"), sum, 0o600))
}

// failingBolt is a copy of bbolt with its failpoints enabled. It lies where it
// lay at the last run, so that the compiler's cache serves the next one.
func failingBolt(bolt string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	copied := filepath.Join(cache, "edda-crash", filepath.Base(bolt), "bbolt")
	if _, err := os.Stat(copied); err == nil {
		return copied, nil
	}
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(copied), "fresh")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }() // where another run was faster
	dir := filepath.Join(fresh, "bbolt")
	if err := os.CopyFS(dir, os.DirFS(bolt)); err != nil {
		return "", err
	}
	if err := enabled(dir, func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }); err != nil {
		return "", err
	}
	if err := os.Rename(dir, copied); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return copied, nil
}

// enabled gives put every file below a folder that has failpoints, with them
// enabled, and beside it the file that registers them.
func enabled(root string, put func(path string, text []byte) error) error {
	return productFiles(root, func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(failpoints)) {
			return err
		}
		if err := enable(path, text, put); err != nil {
			return fmt.Errorf("enable the failpoints of %s: %w", path, err)
		}
		return nil
	})
}

// productFiles visits the Go files below a folder that are no tests.
func productFiles(root string, visit func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"systemtest", "testdata", "tools", "bench"}, name)):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".fail.go"):
			return nil
		}
		return visit(path)
	})
}

// packageName finds it in a file.
var packageName = regexp.MustCompile(`(?m)^package (\w+)`)

func enable(path string, text []byte, put func(path string, text []byte) error) error {
	var changed, binding bytes.Buffer
	points, err := code.ToFailpoints(&changed, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := code.NewBinding(string(packageName.FindSubmatch(text)[1]), points).Write(&binding); err != nil {
		return err
	}
	if err := put(path, changed.Bytes()); err != nil {
		return err
	}
	return put(strings.TrimSuffix(path, ".go")+".fail.go", binding.Bytes())
}

// crashClock is the package by which the clocked binary knows the time. Its wall
// clock is off by as many seconds as a file says; the one that runs evenly is
// not, as with a real step.
const crashClock = `package crashclock

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

var step atomic.Int64

func init() {
	path := os.Getenv("CRASH_CLOCK")
	if path == "" {
		return
	}
	read(path)
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			read(path)
		}
	}()
}

func read(path string) {
	text, _ := os.ReadFile(path)
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		step.Store(n)
	}
}

// A time with a reading of both clocks keeps the wall clock's seconds above the
// lowest 30 bits of its first word.
func Now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(step.Load() << 30)
	return t
}

func Since(t time.Time) time.Duration { return Now().Sub(t) }
func Until(t time.Time) time.Duration { return t.Sub(Now()) }
`

// asksTime finds where the product asks for the time.
var asksTime = regexp.MustCompile(`\btime\.(Now|Since|Until)\b`)

// clock has every file of the product ask the stepped clock.
func (o *overlay) clock(root string) error {
	err := productFiles(root, func(path string) error {
		text, err := o.text(path)
		if err != nil || !asksTime.Match(text) {
			return err
		}
		text = asksTime.ReplaceAll(text, []byte("crashclock.$1"))
		text = regexp.MustCompile(`(?m)^package .*$`).ReplaceAll(text, []byte("$0\n\nimport \"edda/internal/crashclock\"\n"))
		return o.put(path, append(text, "\nvar _ time.Duration\nvar _ = crashclock.Now\n"...))
	})
	if err != nil {
		return err
	}
	if err := o.put(filepath.Join(root, "internal", "crashclock", "clock.go"), []byte(crashClock)); err != nil {
		return err
	}
	return o.write()
}

// text is a file as the overlay has it.
func (o *overlay) text(path string) ([]byte, error) {
	if other, ok := o.Replace[path]; ok {
		path = other
	}
	return os.ReadFile(path)
}

// TestEveryFailpointIsInThePlan: a point that the product names is one where the
// torture kills.
func TestEveryFailpointIsInThePlan(t *testing.T) {
	root, err := moduleDir("edda")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(regexp.QuoteMeta(failpoints) + `(\w+)`)
	found := 0
	err = productFiles(root, func(path string) error {
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllSubmatch(text, -1) {
			set := slices.ContainsFunc(slices.Concat(settings, narrow), func(s string) bool { return strings.HasPrefix(s, string(m[1])+"=") })
			if found++; !set && !slices.Contains(slices.Concat(points, copyPoints, behindPoints, splitPoints), string(m[1])) {
				t.Errorf("%s: the failpoint %s is not in the plan of the torture", path, m[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d failpoints, %v", found, err)
	}
}
